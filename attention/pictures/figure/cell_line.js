// The line of the chosen cell under the maps: its position, its number, the arithmetic, and the cells that it was computed from.

import { create, numberField } from "./elements.js";

const NOT_ANNOUNCED = "\u00a0"; // the text of the live region for the first cell of a page

// "query [3] bank": the position is a field, so that any cell can be reached by typing.
function createSide(container, side) {
  const field = numberField({ name: side, min: 0 }, (value) => {
    field.committed = value;
    container.setKnobs({ [field.knob]: Number(value) });
  });
  const axis = create("span");
  const token = create("code");
  const position = create("span", { className: "nowrap" }, axis, " [", field, "]");
  const element = create("span", { className: `side ${side}` }, position, " ", token);
  element.update = ({ name: knob, axis: name, token: word, value, high }) => {
    field.knob = knob;
    axis.textContent = name;
    token.textContent = word;
    token.hidden = !word;
    field.max = high;
    field.setAttribute("aria-label", name);
    field.update({ value });
  };
  return element;
}

function build(container) {
  container.parts = {
    step: create("b"),
    sides: [createSide(container, "q"), createSide(container, "k")],
    number: create("b", { className: "number" }),
    arithmetic: create("span", { className: "arithmetic" }),
    sources: create("span", { className: "sources" }),
    liveRegion: create("span", { className: "visually-hidden" }),
  };
  const { step, sides: [query, key], number, arithmetic, sources, liveRegion } = container.parts;
  liveRegion.setAttribute("aria-live", "polite");
  container.tabIndex = -1;
  container.setAttribute("role", "group");
  container.setAttribute("aria-label", "The chosen cell");
  const position = create("span", {}, step, " · ", query, " → ", key);
  container.append(position, create("span", {}, "= ", number), arithmetic, sources, liveRegion);
}

// Draws the line that Python has `sent`; `setKnobs` reports a click or a typed position to Python.
export function drawLine(container, sent, setKnobs) {
  container.setKnobs = setKnobs;
  if (!sent) {
    container.replaceChildren();
    return;
  }
  if (!container.firstChild) build(container);
  const { step, sides, number, arithmetic, sources, liveRegion } = container.parts;
  step.textContent = sent.step;
  sent.sides.forEach((side, i) => sides[i].update(side));
  number.textContent = sent.shown;
  arithmetic.textContent = sent.short ? `${sent.sign} ${sent.short}` : "";
  arithmetic.style.visibility = "";

  const positions = sent.sides.map(({ axis, token, value }) => token || `${axis} ${value}`);
  const text = `${sent.step}, ${positions.join(" to ")}, ${sent.shown}`;
  if (!liveRegion.textContent) liveRegion.textContent = NOT_ANNOUNCED;
  else if (liveRegion.textContent !== text) liveRegion.textContent = text;

  const focused = [...sources.children].indexOf(document.activeElement);
  const buttons = sent.from.map(({ label, knobs }) => {
    const button = create("button", { type: "button", textContent: label });
    button.addEventListener("click", () => setKnobs(knobs));
    return button;
  });
  sources.replaceChildren(...(buttons.length ? ["from "] : []), ...buttons);
  // The pressed button is gone; focus the button that took its position.
  if (focused >= 0) (sources.children[Math.min(focused, sources.children.length - 1)] ?? container).focus({ preventScroll: true });
}

// Shows the number that the page computes while the user changes a knob; Python sends the arithmetic when the knob is released.
export function showLiveNumber(container, number) {
  if (!container.parts) return;
  container.parts.number.textContent = Number.isFinite(number) ? String(Number(number.toPrecision(4))) : "−∞";
  container.parts.arithmetic.style.visibility = "hidden"; // keeps its space, so that nothing moves
}
