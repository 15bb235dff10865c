// The browser's history while knobs are turned.
//
// Streamlit 1.67 pushes a history entry for every single knob the server sets: a click on a cell would
// need three steps back, some of them to states that never were. And for what a person sets in a widget
// of its own it makes none: Back would leave the page. Here: one act of a person, one entry.
// And on the way back to another page it drops the knobs; that page is loaded afresh from its address.

import { announce } from "./frame.js";

const SENDING = 100; // milliseconds after which what was turned has left for the server
const PATIENCE = 2000; // milliseconds after which Back does not wait any more for the answer to what it undoes
const PACE = 20;

let acted = false; // whether a person has done something since the last entry
let path = location.pathname; // the page that the last entry is of
let sent = -Infinity; // when something was turned, and is about to be sent
let waits = 0; // what looks, at its pace, whether the server has answered

export function sending() { sent = performance.now(); }

// Whether the server owes no answer.
function answered() {
  const app = document.querySelector("[data-testid=stApp]");
  return app?.dataset.testScriptState === "notRunning" && performance.now() > sent + SENDING;
}

const sorted = (query) => String(new URLSearchParams([...query].sort()));

const { pushState, replaceState } = history;

// One act is one entry; what follows from it replaces the entry.
history.pushState = function push(state, title, url) {
  // A menu link adds its knobs to those that stand in the address already: each once is enough.
  const { pathname, searchParams } = new URL(url ?? "", location.href);
  const once = new URLSearchParams(Object.fromEntries(searchParams));
  const query = once.size ? `?${once}` : "";
  // What the server says after the page has written it by itself is no second act.
  const known = pathname === location.pathname && sorted(once) === sorted(new URLSearchParams(location.search));
  const write = acted && !known ? pushState : replaceState;
  write.call(history, state, title, pathname + query);
  announce();
  if (known) return;
  acted = false;
  path = location.pathname;
};

history.replaceState = history.pushState; // what a person sets in a widget of Streamlit's

// The address of what goes on: no new act, whatever the person does.
export function replace(url, state = history.state) {
  replaceState.call(history, state, "", url);
  announce();
}

// Streamlit has been told of a step back, perhaps before what is undone has left, and put together with another run it
// counts for nothing. So it is said again when all is quiet, with the address that an answer may have changed meanwhile.
function sayAgain(state, back) {
  const until = performance.now() + PATIENCE;
  clearInterval(waits);
  waits = setInterval(() => {
    if (!answered() && performance.now() < until) return;
    clearInterval(waits);
    replace(back, state);
    window.dispatchEvent(new PopStateEvent("popstate", { state }));
  }, PACE);
}

// A key that is held is one act.
for (const event of ["pointerdown", "keydown"]) window.addEventListener(event, ({ repeat }) => { acted ||= !repeat; }, true);

window.addEventListener("popstate", (event) => {
  acted = false;
  if (location.pathname !== path) {
    event.stopImmediatePropagation();
    location.reload();
  } else if (event.isTrusted) { // not our own
    const back = location.href;
    window.dispatchEvent(new Event("goback"));
    if (!answered()) sayAgain(event.state, back);
  }
}, true);
