// One lesson: its maps, its question, and the path. The true answer is only in the message after the user's answer.

import { drawInputs, drawComparison } from "./answer_inputs.js";
import { create } from "./elements.js";
import { drawTables } from "./lesson_tables.js";

const STORAGE_KEY = "attention-lab-lessons"; // the progress on the path, stored only in this browser

// The result of each finished lesson, by name: "right" or "shown".
function progress() {
  try {
    return JSON.parse(localStorage.getItem(STORAGE_KEY)) ?? {};
  } catch {
    return {};
  }
}

function saveProgress(name, result) {
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify({ ...progress(), [name]: result }));
  } catch {
    // Without storage, the path is shown without ticks.
  }
}

const nextLesson = ({ path, name }) => path[path.findIndex(([other]) => other === name) + 1];

function drawPath(root, data, go) {
  root.querySelector("nav").hidden = data.path.length === 1;
  const results = progress();
  const count = data.path.filter(([name]) => results[name]).length;
  root.querySelector("nav p").textContent = `${count} of ${data.path.length} lessons done`;
  root.querySelector("nav ol").replaceChildren(...data.path.map(([name, title], i) => {
    const button = create("button", { type: "button", textContent: i + 1, title });
    button.className = results[name] ?? "";
    button.setAttribute("aria-label", `${i + 1}, ${title}${results[name] ? ", done" : ""}`);
    if (name === data.name) button.setAttribute("aria-current", "step");
    button.addEventListener("click", () => go(name));
    const item = create("li");
    item.append(button);
    return item;
  }));
}

// Draws the question and its inputs while it is unanswered.
function drawQuestion(root, { message, name }, send) {
  const form = root.querySelector("form");
  form.replaceChildren();
  if (!message) return null;
  const fieldset = create("fieldset");
  fieldset.append(create("legend", { textContent: message.question, tabIndex: -1 }));
  form.append(fieldset);
  if (message.stage === "done") return null;
  const answer = drawInputs(fieldset, message);
  form.append(create("button", { type: "submit", className: "main", textContent: message.stage === "again" ? "Answer again" : "Answer" }));
  form.onsubmit = (event) => {
    event.preventDefault();
    const guess = answer();
    if (guess === null) announce(root, answer.missing?.() || "Answer first, or skip this lesson.", true);
    else send({ name, guess, at: Date.now() });
  };
  return answer;
}

// Announces a text to screen readers; with `visible`, it is also shown on the page.
function announce(root, text, visible = false) {
  const status = root.querySelector("[role=status]");
  status.textContent = text;
  status.classList.toggle("visually-hidden", !visible);
}

function drawReply(root, { message }) {
  const container = root.querySelector(".reply");
  container.replaceChildren();
  container.className = "reply";
  if (!message || message.stage === "ask") return;
  const { stage, right, reply, truth_text: truthText, guess_text: guessText } = message;
  container.classList.add(right ? "right" : "wrong");
  const verdict = right ? `Yes: ${truthText}.` : stage === "again" ? "Not yet." : `It is ${truthText}. You said ${guessText}.`;
  const paragraph = create("p");
  paragraph.append(create("b", { textContent: message.kind === "row" && stage === "done" ? (right ? "Yes." : "It is this row.") : verdict }), ` ${reply}`);
  container.append(paragraph);
  if (stage === "again") container.append(create("p", { textContent: "One more try." }));
  if (message.kind === "row" && stage === "done") container.append(drawComparison(message));
}

function drawOnward(root, data, go) {
  const container = root.querySelector(".onward");
  const done = data.message?.stage === "done";
  const following = nextLesson(data);
  container.replaceChildren();
  if (following) {
    const button = create("button", { type: "button", className: done ? "main" : "", textContent: done ? `Next: ${following[1]}` : "Skip" });
    button.addEventListener("click", () => go(following[0]));
    container.append(button);
  } else if (done && data.path.length > 1) container.append(create("p", { textContent: "This was the last lesson. Explore is yours." }));
  if (data.watch) container.append(create("a", { href: data.watch, target: "_blank", rel: "noopener", textContent: "Watch it learn ↗" }));
  if (data.lab) {
    const textContent = done ? "Play with it in Explore ↗" : "Skip, and look in Explore ↗";
    container.append(create("a", { href: data.lab, target: "_blank", rel: "noopener", textContent }));
  }
}

function announcement(data) {
  const { message, name, path } = data;
  const index = path.findIndex(([other]) => other === name);
  const title = path.length > 1 ? `Lesson ${index + 1} of ${path.length}: ${path[index][1]}` : path[index][1];
  if (!message) return title;
  if (message.stage === "ask") return `${title}. ${message.question}`;
  if (message.stage === "again") return `Not yet. ${message.reply} One more try.`;
  const done = Object.keys(progress()).filter((finished) => path.some(([other]) => other === finished)).length;
  const verdict = message.right ? "Right." : "Not right.";
  const count = path.length > 1 ? ` ${done} of ${path.length} lessons done.` : "";
  return `${verdict} It is ${message.truth_text}. ${message.reply}${count}`;
}

export default function render({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".lesson");
  const sent = JSON.stringify(data);
  if (root.dataset.sent === sent) return;
  const isAnother = root.name !== undefined && root.name !== data.name;
  const hasFocus = root.contains(document.activeElement);
  Object.assign(root.dataset, { sent });
  root.name = data.name;
  if (data.message?.stage === "done") saveProgress(data.name, data.message.right ? "right" : "shown");

  const go = (name) => setTriggerValue("go", name);
  const answer = drawQuestion(root, data, (response) => setTriggerValue("answer", response));
  drawTables(root.querySelector(".tables"), data.message ?? { figures: [] }, answer?.onSelect);
  drawReply(root, data);
  drawOnward(root, data, go);
  drawPath(root, data, go);
  announce(root, announcement(data));
  if (isAnother) {
    root.closest("[data-testid=stMain]")?.scrollTo({ top: 0 });
    root.querySelector("legend")?.focus({ preventScroll: true });
  } else if (hasFocus && data.message && data.message.stage !== "ask") {
    root.querySelector(".reply").focus({ preventScroll: true });
    root.querySelector(".reply").scrollIntoView({ block: "nearest" });
  }
  root.figureState = { painted: data, figures: data };
}
