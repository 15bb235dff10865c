// Restores the keyboard focus when a run replaces the focused element, and makes scrollable formulas focusable.

const CONTROLS = "a[href], button, input, select, textarea, canvas, [tabindex]";
const controlsOf = (key) => [...document.querySelectorAll(`.${CSS.escape(key)} :is(${CONTROLS})`)];

// The class that Streamlit gives the same element in every run.
function keyOf(element) {
  const classes = element.closest("[class*=st-key-]")?.classList ?? [];
  return [...classes].find((name) => name.startsWith("st-key-"));
}

// Makes formulas that are wider than the page focusable, so that the arrow keys scroll them.
function makeFormulasFocusable() {
  for (const formula of document.querySelectorAll(".stMain .katex-display")) {
    if (formula.scrollWidth > formula.clientWidth) formula.tabIndex = 0;
    else formula.removeAttribute("tabindex");
  }
}

let isWatching = false;

export function keepFocus(app) {
  if (isWatching) return;
  isWatching = true;
  let last = null; // the focused element, its ancestors, its key, and its index among the controls of that key
  app.addEventListener("focusin", ({ target }) => {
    const key = keyOf(target);
    const ancestors = [];
    for (let element = target; element !== app; element = element.parentElement) ancestors.push(element);
    last = { target, ancestors, key, index: key ? controlsOf(key).indexOf(target) : -1 };
  });
  app.addEventListener("focusout", ({ target }) => {
    // If the user moves the focus away, the element still exists; a replaced element is disconnected a moment later.
    queueMicrotask(() => { if (target.isConnected && document.activeElement === document.body) last = null; });
  });
  // Focuses the same control of the new run, or else its nearest remaining ancestor.
  const restore = () => {
    if (!last || last.target.isConnected || document.activeElement !== document.body) return;
    if (app.dataset.testScriptState !== "notRunning") return;
    const sameControl = last.key && controlsOf(last.key)[last.index];
    const target = sameControl || last.ancestors.find((element) => element.isConnected) || app.querySelector("h1");
    if (target && !target.matches(CONTROLS)) Object.assign(target, { tabIndex: -1 }).style.outline = "none"; // no control, no frame
    target?.focus({ preventScroll: true });
  };
  const update = () => {
    restore();
    makeFormulasFocusable();
  };
  // Streamlit removes stale elements a moment after the run has ended.
  const observer = new MutationObserver(() => requestAnimationFrame(() => requestAnimationFrame(update)));
  observer.observe(app, { attributes: true, attributeFilter: ["data-test-script-state"] });
  addEventListener("resize", makeFormulasFocusable);
  // A formula is drawn before its fonts load.
  document.fonts.addEventListener("loadingdone", () => requestAnimationFrame(makeFormulasFocusable));
  // Streamlit gives no event when it draws a formula, after loading its library, or when it removes late stale elements.
  setInterval(update, 1000);
}
