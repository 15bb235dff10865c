// Keeps the keyboard's focus where it was when a run takes away what had it, and lets it reach what must be scrolled.

const CONTROLS = "a[href], button, input, select, textarea, canvas, [tabindex]";
const controls = (key) => [...document.querySelectorAll(`.${CSS.escape(key)} :is(${CONTROLS})`)];

// The class under which Streamlit draws the same element in every run.
function keyOf(element) {
  const classes = element.closest("[class*=st-key-]")?.classList ?? [];
  return [...classes].find((name) => name.startsWith("st-key-"));
}

// A long formula is scrolled with the arrows, by whoever can come to it.
function reachFormulas() {
  for (const formula of document.querySelectorAll(".stMain .katex-display")) {
    if (formula.scrollWidth > formula.clientWidth) formula.tabIndex = 0;
    else formula.removeAttribute("tabindex");
  }
}

let kept = false;

export function keepFocus(app) {
  if (kept) return;
  kept = true;
  let last = null; // what had the focus, what stood around it, and which of the controls under its key it was
  app.addEventListener("focusin", ({ target }) => {
    const key = keyOf(target);
    const above = [];
    for (let element = target; element !== app; element = element.parentElement) above.push(element);
    last = { target, above, key, place: key ? controls(key).indexOf(target) : -1 };
  });
  app.addEventListener("focusout", ({ target }) => {
    // Who leaves by himself goes where he wants; what is taken away is gone a moment later.
    queueMicrotask(() => { if (target.isConnected && document.activeElement === document.body) last = null; });
  });
  // To the same control of the run after, or else to what stood around it.
  const comeBack = () => {
    if (!last || last.target.isConnected || document.activeElement !== document.body) return;
    if (app.dataset.testScriptState !== "notRunning") return;
    const same = last.key && controls(last.key)[last.place];
    const again = same || last.above.find((element) => element.isConnected) || app.querySelector("h1");
    if (again && !again.matches(CONTROLS)) again.tabIndex = -1;
    again?.focus({ preventScroll: true });
  };
  const look = () => {
    comeBack();
    reachFormulas();
  };
  // What is stale goes a moment after the run has ended.
  const later = new MutationObserver(() => requestAnimationFrame(() => requestAnimationFrame(look)));
  later.observe(app, { attributes: true, attributeFilter: ["data-test-script-state"] });
  addEventListener("resize", reachFormulas);
  // A formula comes before its letters.
  document.fonts.addEventListener("loadingdone", () => requestAnimationFrame(reachFormulas));
  // Without a sign Streamlit sets a formula when it has fetched what sets formulas, and takes away late what is stale.
  setInterval(look, 1000);
}
