// The inputs of an answer, for each kind of question. Each is drawn into a container and returns `answer()`, which gives the answer or null;
// `answer.missing()` describes an invalid input, if there is any.

import { create } from "./elements.js";

const STEP = 0.05; // of a bar
const LARGEST = 1e300; // the limit of a number, as in attention/lessons/lesson.py

// Buttons of which one can be chosen.
function chips(container, legend, names, values) {
  const group = create("div", { className: "chips" });
  names.forEach((name, i) => {
    const label = create("label");
    label.append(create("input", { type: "radio", name: "guess", value: i }), create("span", { textContent: name }));
    group.append(label);
  });
  container.append(group);
  return () => {
    const chosen = group.querySelector(":checked");
    return chosen ? values[Number(chosen.value)] : null;
  };
}

// Keys that the user taps in order; tapping a chosen one removes it and those after it.
function ordering(container, { keys }) {
  const group = create("div", { className: "chips order" });
  let order = [];
  const buttons = keys.map((name, i) => {
    const button = create("button", { type: "button" });
    button.append(create("b"), create("span", { textContent: name }));
    button.addEventListener("click", () => {
      order = order.includes(i) ? order.slice(0, order.indexOf(i)) : [...order, i];
      show();
    });
    return button;
  });
  const show = () => buttons.forEach((button, i) => {
    const position = order.indexOf(i);
    button.setAttribute("aria-pressed", position >= 0);
    button.setAttribute("aria-label", position < 0 ? keys[i] : `${keys[i]}, place ${position + 1}`);
    button.firstChild.textContent = position < 0 ? "○" : position + 1;
  });
  show();
  group.append(...buttons);
  container.append(create("p", { className: "hint", textContent: "Tap them one after the other, the largest first." }), group);
  return () => (order.length === keys.length ? order : null);
}

function number(container, { question }) {
  const input = create("input", { type: "text", inputMode: "decimal", autocomplete: "off", className: "number" });
  input.setAttribute("aria-label", question);
  container.append(input);
  const answer = () => {
    const text = input.value.trim().replace(",", ".").replace("−", "-");
    return text && Math.abs(Number(text)) < LARGEST ? Number(text) : null;
  };
  answer.missing = () => (input.value.trim() ? `That is no number: write one with digits, such as 2 or 0.5; got “${input.value.trim().slice(0, 20)}”.` : "");
  return answer;
}

// A bar for each key, and the sum of all bars.
function bars(container, { keys, guess }) {
  const lines = create("div", { className: "bars" });
  const sum = create("p", { className: "hint" });
  const inputs = keys.map((name, i) => {
    const label = create("label");
    const input = create("input", { type: "range", min: 0, max: 1, step: STEP, value: guess?.[i] ?? 0 });
    const output = create("output");
    label.append(create("span", { textContent: name }), input, output);
    lines.append(label);
    input.addEventListener("input", show);
    return [input, output];
  });
  function show() {
    const values = inputs.map(([input]) => Number(input.value));
    inputs.forEach(([input, output], i) => {
      output.textContent = values[i].toFixed(2);
      input.setAttribute("aria-valuetext", values[i].toFixed(2));
    });
    sum.textContent = `Sum of the bars: ${values.reduce((total, value) => total + value, 0).toFixed(2)}`;
  }
  show();
  container.append(lines, sum);
  return () => inputs.map(([input]) => Number(input.value));
}

// A cell that the user chooses on the map above; `onPage` is the one that is chosen on the large map, where that shows the numbers.
function cell(container, { chosen: onPage } = {}) {
  const hint = create("p", { className: "hint", textContent: onPage !== undefined ? "Your cell is the one that you choose on the large map." : "Tap a cell above, or go there with the arrow keys and press Enter." });
  let chosen = onPage ?? null;
  container.append(hint);
  const answer = () => chosen;
  answer.onSelect = (position, name) => {
    chosen = position;
    hint.textContent = `Your cell: ${name}`;
  };
  return answer;
}

// A patch that the user chooses on the picture above.
function patch(container) {
  const cellAnswer = cell(container);
  container.querySelector(".hint").textContent = "Tap a patch of the picture, or go there with the arrow keys and press Enter.";
  const answer = () => cellAnswer()?.[1] ?? null;
  answer.onSelect = (position, name) => {
    cellAnswer.onSelect(position, name);
    container.querySelector(".hint").textContent = `Your patch: ${name}`;
  };
  return answer;
}

const KINDS = {
  cell,
  number,
  row: bars,
  order: ordering,
  key: (container, { question, keys, figures }) => figures.at(-1)?.picture ? patch(container) : chips(container, question, keys, keys.map((_, i) => i)),
  choice: (container, { question, options }) => chips(container, question, options, options),
};

export function drawInputs(container, message) {
  return KINDS[message.kind](container, message);
}

// A guessed row beside the true row, bar under bar.
export function drawComparison({ keys, guess, truth }) {
  const lines = create("div", { className: "bars compared" });
  keys.forEach((name, i) => {
    const line = create("div");
    line.append(create("span", { textContent: name }));
    const pairs = create("div");
    for (const [source, weight] of [["truth", truth[i]], ["guess", guess[i]]]) {
      const bar = create("i", { className: source });
      bar.style.setProperty("--weight", Math.min(1, weight));
      const caption = create("small", { textContent: `${source === "truth" ? "it is" : "you said"} ${weight.toFixed(2)}` });
      const pair = create("p");
      pair.append(bar, caption);
      pairs.append(pair);
    }
    line.append(pairs);
    lines.append(line);
  });
  return lines;
}
