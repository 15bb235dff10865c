// The one writer of the address. It stands in the index page before Streamlit's own scripts, and is the component at the
// end of every page that brings the server's answers.
//
// Streamlit writes the address too and has no setting for it, so history.js takes the browser's history from it.

import { Entries } from "./entries.js";
import { announce } from "./frame.js";
import { takeHistory, write } from "./history.js";

const PATIENCE = 1000; // milliseconds after which acts that nobody has answered are sent again, when all is quiet

function writeEntry(how, path, query, number) {
  write(how, { number }, path + (query && `?${query}`));
  announce();
}

const entries = new Entries(location.pathname, location.search.slice(1), {
  push: (...entry) => writeEntry("push", ...entry),
  replace: (...entry) => writeEntry("replace", ...entry),
});

let send = null; // takes acts to a run of the whole page
let ask = null; // asks for a run of the whole page
let sentAt = 0;
let held = false; // whether a key is held down

takeHistory((path) => entries.opened(path), () => {
  if (location.pathname !== entries.path) location.reload(); // which is right by construction
  else if (entries.traversed(location.search.slice(1))) sendActs(send);
});

addEventListener("keydown", ({ repeat }) => { held = repeat; }, true);
addEventListener("pointerdown", () => { held = false; }, true);

function sendActs(through) {
  sentAt = performance.now();
  through?.(entries.message);
}

// What was sent to a page that is gone meanwhile, or to a server, has no answer.
setInterval(() => {
  const { testScriptState, testConnectionState } = document.querySelector("[data-testid=stApp]")?.dataset ?? {};
  const quiet = testScriptState === "notRunning" && testConnectionState === "CONNECTED";
  if (entries.acts.length && quiet && performance.now() - sentAt > PATIENCE) sendActs(send);
}, PATIENCE);

// As Python writes a value into the address.
const text = (value, name) => (name === "temperature" && Number.isInteger(value) ? value.toFixed(1) : String(value));

/**
 * Something was turned or clicked in a figure.
 * @param act what the server is told
 * @param defaults what each knob is where the address does not name it; what is not among them only the server can write
 * @param turned the knobs that are turned by it
 * @param through takes acts to the server
 */
export function act(act, defaults, turned, through) {
  const names = Object.keys(turned).filter((name) => name in (defaults ?? {}));
  const query = new URLSearchParams(entries.query);
  for (const name of names) {
    const value = text(turned[name], name);
    if (value === defaults[name]) query.delete(name);
    else query.set(name, value);
  }
  entries.act(act, names.join(" "), names.length ? String(query) : null, performance.now(), held);
  sendActs(through);
}

/** Whether a picture answers an older act than the last. */
export const isLate = (number) => number < entries.number;

/** Asks for a run of the whole page. */
export const runAgain = () => ask?.();

/** An answer of the server. */
export default function render({ data, setStateValue, setTriggerValue }) {
  if (!data.fragment) {
    send = (message) => setStateValue("acts", message);
    ask = () => setTriggerValue("again", Date.now());
  }
  if (entries.answer(data) === "acts") sendActs(send);
  announce(); // Streamlit has told the page around this one its own idea of the address meanwhile
}
