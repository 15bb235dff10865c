// The browser's history while knobs are turned.
//
// Streamlit 1.67 pushes a history entry for every single knob the server sets: a click on a cell would
// need three steps back, some of them to states that never were. Here: one act of a person, one entry.
// And on the way back to another page it drops the knobs; that page is loaded afresh from its address.
if (!window.attentionHistory) {
  window.attentionHistory = { acted: false, path: location.pathname };
  const own = window.attentionHistory;
  for (const event of ["pointerdown", "keydown"]) window.addEventListener(event, () => { own.acted = true; }, true);
  const push = history.pushState;
  history.pushState = function (state, title, url) {
    // A menu link adds its knobs to those that stand in the address already: each once is enough.
    const { pathname, searchParams } = new URL(url ?? "", location.href);
    const once = new URLSearchParams(Object.fromEntries(searchParams)).toString();
    (own.acted ? push : history.replaceState).call(history, state, title, pathname + (once && `?${once}`));
    own.acted = false;
    own.path = location.pathname;
  };
  window.addEventListener("popstate", (event) => {
    own.acted = false;
    if (location.pathname === own.path) return;
    event.stopImmediatePropagation();
    location.reload();
  }, true);
}

export const installed = true;
