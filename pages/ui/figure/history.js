// The browser's history while knobs are turned.
//
// Streamlit 1.67 pushes a history entry for every single knob the server sets: a click on a cell would
// need three steps back, some of them to states that never were. Here: one act of a person, one entry.
// And on the way back to another page it drops the knobs; that page is loaded afresh from its address.
const SENDING = 100; // milliseconds after which what was turned has left for the server
const PATIENCE = 2000; // milliseconds after which Back does not wait any more for the answer to what it undoes
const PACE = 20;

if (!window.attentionHistory) {
  window.attentionHistory = { acted: false, path: location.pathname, sent: -Infinity };
  const own = window.attentionHistory, sorted = (query) => String(new URLSearchParams([...query].sort()));
  for (const event of ["pointerdown", "keydown"]) window.addEventListener(event, () => { own.acted = true; }, true);
  const push = history.pushState;
  history.pushState = function (state, title, url) {
    // A menu link adds its knobs to those that stand in the address already: each once is enough.
    const { pathname, searchParams } = new URL(url ?? "", location.href);
    const once = new URLSearchParams(Object.fromEntries(searchParams)), query = once.size ? `?${once}` : "";
    // What the server says after the page has written it by itself is no second act.
    const known = pathname === location.pathname && sorted(once) === sorted(new URLSearchParams(location.search));
    (own.acted && !known ? push : history.replaceState).call(history, state, title, pathname + query);
    if (known) return;
    own.acted = false;
    own.path = location.pathname;
  };
  window.addEventListener("popstate", (event) => {
    own.acted = false;
    if (location.pathname === own.path) {
      if (!event.isTrusted) return; // the one below
      const back = location.href;
      window.dispatchEvent(new Event("goback"));
      if (answered()) return;
      // Streamlit has been told, perhaps before what is undone has left, and put together with another run Back counts
      // for nothing. So it is said again when all is quiet, with the address that an answer may have changed meanwhile.
      const until = performance.now() + PATIENCE;
      clearInterval(own.waits);
      own.waits = setInterval(() => {
        if (!answered() && performance.now() < until) return;
        clearInterval(own.waits);
        history.replaceState(event.state, "", back);
        window.dispatchEvent(new PopStateEvent("popstate", { state: event.state }));
      }, PACE);
      return;
    }
    event.stopImmediatePropagation();
    location.reload();
  }, true);
}

// Whether the server owes no answer.
function answered() {
  const app = document.querySelector("[data-testid=stApp]");
  return app?.dataset.testScriptState === "notRunning" && performance.now() > window.attentionHistory.sent + SENDING;
}

// Something was turned, and is about to be sent.
export function sending() { window.attentionHistory.sent = performance.now(); }
