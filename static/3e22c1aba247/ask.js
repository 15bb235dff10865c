// What a person answers with, for each kind of question: it is drawn into a place, and `answer()` gives what was answered, or null;
// `answer.missing()` says what is wrong with what was given, where anything was.

import { made } from "./made.js";

const STEP = 0.05; // of a bar that is pulled
const LARGEST = 1e300; // of a number, as attention/lessons/kinds.py reads it

// Buttons of which one is chosen.
function chips(place, legend, names, values) {
  const group = made("div", { className: "chips" });
  names.forEach((name, i) => {
    const label = made("label");
    label.append(made("input", { type: "radio", name: "guess", value: i }), made("span", { textContent: name }));
    group.append(label);
  });
  place.append(group);
  return () => {
    const chosen = group.querySelector(":checked");
    return chosen ? values[Number(chosen.value)] : null;
  };
}

// Keys that are tapped in their order; another tap takes one out, and those after it.
function inOrder(place, { keys }) {
  const group = made("div", { className: "chips order" });
  let order = [];
  const buttons = keys.map((name, i) => {
    const button = made("button", { type: "button" });
    button.append(made("b"), made("span", { textContent: name }));
    button.addEventListener("click", () => {
      order = order.includes(i) ? order.slice(0, order.indexOf(i)) : [...order, i];
      show();
    });
    return button;
  });
  const show = () => buttons.forEach((button, i) => {
    const at = order.indexOf(i);
    button.setAttribute("aria-pressed", at >= 0);
    button.setAttribute("aria-label", at < 0 ? keys[i] : `${keys[i]}, place ${at + 1}`);
    button.firstChild.textContent = at < 0 ? "○" : at + 1;
  });
  show();
  group.append(...buttons);
  place.append(made("p", { className: "hint", textContent: "Tap them one after the other, the largest first." }), group);
  return () => (order.length === keys.length ? order : null);
}

function number(place, { question }) {
  const input = made("input", { type: "text", inputMode: "decimal", autocomplete: "off", className: "number" });
  input.setAttribute("aria-label", question);
  place.append(input);
  const answer = () => {
    const text = input.value.trim().replace(",", ".").replace("−", "-");
    return text && Math.abs(Number(text)) < LARGEST ? Number(text) : null;
  };
  answer.missing = () => (input.value.trim() ? `That is no number: write one with digits, such as 2 or 0.5; got “${input.value.trim().slice(0, 20)}”.` : "");
  return answer;
}

// Bars to pull, one for each key; their sum stands below.
function row(place, { keys, guess }) {
  const lines = made("div", { className: "bars" });
  const sum = made("p", { className: "hint" });
  const inputs = keys.map((name, i) => {
    const label = made("label");
    const input = made("input", { type: "range", min: 0, max: 1, step: STEP, value: guess?.[i] ?? 0 });
    const output = made("output");
    label.append(made("span", { textContent: name }), input, output);
    lines.append(label);
    input.addEventListener("input", show);
    return [input, output];
  });
  function show() {
    const shares = inputs.map(([input]) => Number(input.value));
    inputs.forEach(([input, output], i) => {
      output.textContent = shares[i].toFixed(2);
      input.setAttribute("aria-valuetext", shares[i].toFixed(2));
    });
    sum.textContent = `Sum of the bars: ${shares.reduce((all, one) => all + one, 0).toFixed(2)}`;
  }
  show();
  place.append(lines, sum);
  return () => inputs.map(([input]) => Number(input.value));
}

// The cell is picked on the map above.
function cell(place) {
  const said = made("p", { className: "hint", textContent: "Tap a cell above, or go there with the arrow keys and press Enter." });
  let picked = null;
  place.append(said);
  const answer = () => picked;
  answer.picked = (where, name) => {
    picked = where;
    said.textContent = `Your cell: ${name}`;
  };
  return answer;
}

const KINDS = {
  cell,
  number,
  row,
  order: inOrder,
  key: (place, { question, keys }) => chips(place, question, keys, keys.map((_, i) => i)),
  choice: (place, { question, options }) => chips(place, question, options, options),
};

export function ask(place, message) {
  return KINDS[message.kind](place, message);
}

// A sketched row beside the true one, bar under bar.
export function compared({ keys, guess, truth }) {
  const lines = made("div", { className: "bars compared" });
  keys.forEach((name, i) => {
    const line = made("div");
    line.append(made("span", { textContent: name }));
    const both = made("div");
    for (const [whose, share] of [["truth", truth[i]], ["guess", guess[i]]]) {
      const bar = made("i", { className: whose });
      bar.style.setProperty("--share", Math.min(1, share));
      const words = made("small", { textContent: `${whose === "truth" ? "it is" : "you said"} ${share.toFixed(2)}` });
      const pair = made("p");
      pair.append(bar, words);
      both.append(pair);
    }
    line.append(both);
    lines.append(line);
  });
  return lines;
}
