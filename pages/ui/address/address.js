// The only writer of the address. It runs in the index page before Streamlit's scripts, and is also the component at the
// end of every page that receives the server's answers.
//
// Streamlit also writes the address and has no setting for that, so history.js takes over the browser's history.

import { Entries, valueText } from "./entries.js";
import { announce } from "./frame.js";
import { takeHistory, write } from "./history.js";

const RESEND_AFTER = 1000; // milliseconds after which unanswered acts are sent again, if no script is running

function writeEntry(method, path, query, number) {
  write(method, { number }, path + (query && `?${query}`));
  announce();
}

const entries = new Entries(location.pathname, location.search.slice(1), {
  push: (...entry) => writeEntry("push", ...entry),
  replace: (...entry) => writeEntry("replace", ...entry),
});

let send = null; // sends acts to a run of the whole page
let requestRun = null; // requests a run of the whole page
let sentAt = 0;
let keyIsHeld = false;

takeHistory((path) => entries.opened(path), () => {
  if (location.pathname !== entries.path) location.reload(); // always correct
  else if (entries.traversed(location.search.slice(1))) sendActs(send);
});

addEventListener("keydown", ({ repeat }) => { keyIsHeld = repeat; }, true);
addEventListener("pointerdown", () => { keyIsHeld = false; }, true);

function sendActs(sender) {
  sentAt = performance.now();
  sender?.(entries.message);
}

// A message carries the values of all widgets. One that is sent while a run is being drawn may carry values that Back has just
// replaced, and yet say that the page has seen the answer that replaces them: the server would take them for the user's own.
function sendWhenDrawn(frames = 3) {
  const isRunning = document.querySelector("[data-testid=stApp]")?.dataset.testScriptState === "running";
  if (frames) requestAnimationFrame(() => sendWhenDrawn(isRunning ? 3 : frames - 1));
  else sendActs(send);
}

// Acts sent to a page that was left meanwhile, or to a lost server, get no answer.
setInterval(() => {
  const { testScriptState, testConnectionState } = document.querySelector("[data-testid=stApp]")?.dataset ?? {};
  const isIdle = testScriptState === "notRunning" && testConnectionState === "CONNECTED";
  if (entries.acts.length && isIdle && performance.now() - sentAt > RESEND_AFTER) sendActs(send);
}, RESEND_AFTER);

/**
 * Records a user action in a figure.
 * @param act the message for the server
 * @param defaults the value of each knob that the address omits; only the server can write other knobs
 * @param knobs the knobs that it changes
 * @param sender sends acts to the server
 */
export function act(act, defaults, knobs, sender) {
  const names = Object.keys(knobs).filter((name) => name in (defaults ?? {}));
  const query = new URLSearchParams(entries.query);
  for (const name of names) {
    const value = valueText(knobs[name], defaults[name]);
    if (value === defaults[name]) query.delete(name);
    else query.set(name, value);
  }
  entries.act(act, names.join(" "), names.length ? String(query) : null, performance.now(), keyIsHeld);
  sendActs(sender);
}

/** Whether a picture answers an act before the last one. */
export const isLate = (number) => number < entries.number;

/** Requests a run of the whole page. */
export const runAgain = () => requestRun?.();

/** Handles an answer of the server. */
export default function render({ data, setStateValue, setTriggerValue }) {
  if (!data.fragment) {
    send = (message) => setStateValue("acts", message);
    requestRun = () => setTriggerValue("again", Date.now());
  }
  if (entries.answer(data) === "acts") sendWhenDrawn();
  announce(); // meanwhile Streamlit has told the embedding page its own address
}
