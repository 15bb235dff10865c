// One lesson: its maps, its question, and the path. What is true comes with the message after the answer, and not before.

import { ask, compared } from "./ask.js";
import { made } from "./made.js";
import { drawTables } from "./tables.js";

const KEPT = "attention-lab-lessons"; // what this browser has done of the path: it is kept nowhere else

// What was done, by the name of the lesson: "right" or "shown".
function progress() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};
  }
}

function keep(name, how) {
  try {
    localStorage.setItem(KEPT, JSON.stringify({ ...progress(), [name]: how }));
  } catch {
    // A browser that keeps nothing shows the path without ticks.
  }
}

const next = ({ path, name }) => path[path.findIndex(([one]) => one === name) + 1];

function drawPath(root, data, go) {
  root.querySelector("nav").hidden = data.path.length === 1;
  const done = progress();
  const count = data.path.filter(([name]) => done[name]).length;
  root.querySelector("nav p").textContent = `${count} of ${data.path.length} lessons done`;
  root.querySelector("nav ol").replaceChildren(...data.path.map(([name, title], i) => {
    const button = made("button", { type: "button", textContent: i + 1, title });
    button.className = done[name] ?? "";
    button.setAttribute("aria-label", `${i + 1}, ${title}${done[name] ? ", done" : ""}`);
    if (name === data.name) button.setAttribute("aria-current", "step");
    button.addEventListener("click", () => go(name));
    const item = made("li");
    item.append(button);
    return item;
  }));
}

// The question with its answers, while it is open.
function drawQuestion(root, { message, name }, send) {
  const form = root.querySelector("form");
  form.replaceChildren();
  if (!message) return null;
  const set = made("fieldset");
  set.append(made("legend", { textContent: message.question, tabIndex: -1 }));
  form.append(set);
  if (message.stage === "done") return null;
  const answer = ask(set, message);
  form.append(made("button", { type: "submit", className: "main", textContent: message.stage === "again" ? "Answer again" : "Answer" }));
  form.onsubmit = (event) => {
    event.preventDefault();
    const guess = answer();
    if (guess === null) say(root, answer.missing?.() || "Answer first, or skip this lesson.", true);
    else send({ name, guess, at: Date.now() });
  };
  return answer;
}

// What is said for a screen reader, and shown where the page says it nowhere else.
function say(root, text, shown = false) {
  const status = root.querySelector("[role=status]");
  status.textContent = text;
  status.classList.toggle("spoken", !shown);
}

function drawReply(root, { message }) {
  const place = root.querySelector(".reply");
  place.replaceChildren();
  place.className = "reply";
  if (!message || message.stage === "ask") return;
  const { stage, right, reply, said, guessed } = message;
  place.classList.add(right ? "right" : "wrong");
  const verdict = right ? `Yes: ${said}.` : stage === "again" ? "Not yet." : `It is ${said}. You said ${guessed}.`;
  const words = made("p");
  words.append(made("b", { textContent: message.kind === "row" && stage === "done" ? (right ? "Yes." : "It is this row.") : verdict }), ` ${reply}`);
  place.append(words);
  if (stage === "again") place.append(made("p", { textContent: "One more try." }));
  if (message.kind === "row" && stage === "done") place.append(compared(message));
}

function drawOnward(root, data, go) {
  const place = root.querySelector(".onward");
  const done = data.message?.stage === "done";
  const following = next(data);
  place.replaceChildren();
  if (following) {
    const button = made("button", { type: "button", className: done ? "main" : "", textContent: done ? `Next: ${following[1]}` : "Skip" });
    button.addEventListener("click", () => go(following[0]));
    place.append(button);
  } else if (done && data.path.length > 1) place.append(made("p", { textContent: "This was the last lesson. The Lab is yours." }));
  if (data.watch) place.append(made("a", { href: data.watch, target: "_blank", rel: "noopener", textContent: "Watch it learn ↗" }));
  if (data.lab) {
    const textContent = done ? "Play with it in the Lab ↗" : "Skip, and look in the Lab ↗";
    place.append(made("a", { href: data.lab, target: "_blank", rel: "noopener", textContent }));
  }
}

function announced(data) {
  const { message, name, path } = data;
  const at = path.findIndex(([one]) => one === name);
  const called = path.length > 1 ? `Lesson ${at + 1} of ${path.length}: ${path[at][1]}` : path[at][1];
  if (!message) return called;
  if (message.stage === "ask") return `${called}. ${message.question}`;
  if (message.stage === "again") return `Not yet. ${message.reply} One more try.`;
  const done = Object.keys(progress()).filter((one) => path.some(([other]) => other === one)).length;
  const verdict = message.right ? "Right." : "Not right.";
  const count = path.length > 1 ? ` ${done} of ${path.length} lessons done.` : "";
  return `${verdict} It is ${message.said}. ${message.reply}${count}`;
}

export default function render({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".lesson");
  const sent = JSON.stringify(data);
  if (root.dataset.sent === sent) return;
  const another = root.name !== undefined && root.name !== data.name;
  const inside = root.contains(document.activeElement);
  Object.assign(root.dataset, { sent });
  root.name = data.name;
  if (data.message?.stage === "done") keep(data.name, data.message.right ? "right" : "shown");

  const go = (name) => setTriggerValue("go", name);
  const answer = drawQuestion(root, data, (given) => setTriggerValue("answer", given));
  drawTables(root.querySelector(".tables"), data.message ?? { figures: [] }, answer?.picked);
  drawReply(root, data);
  drawOnward(root, data, go);
  drawPath(root, data, go);
  say(root, announced(data));
  if (another) {
    root.closest("[data-testid=stMain]")?.scrollTo({ top: 0 });
    root.querySelector("legend")?.focus({ preventScroll: true });
  } else if (inside && data.message && data.message.stage !== "ask") {
    root.querySelector(".reply").focus({ preventScroll: true });
    root.querySelector(".reply").scrollIntoView({ block: "nearest" });
  }
  root.shown = { painted: data, figures: data };
}
