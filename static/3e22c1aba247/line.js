// The chosen cell in one line under the maps: whose it is, its number, the arithmetic, and the cells that it came from.

import { made, numberField } from "./made.js";

const UNSPOKEN = "\u00a0"; // the first cell of a page is not an event

// "query [3] bank": the number is a field, so that any cell can be reached by typing.
function side(place, which) {
  const field = numberField({ name: which, min: 0 }, (value) => {
    field.shown = value;
    place.turn({ [which]: Number(value) });
  });
  const axis = made("span");
  const token = made("code");
  const at = made("span", { className: "unbroken" }, axis, " [", field, "]");
  const whole = made("span", { className: `side ${which}` }, at, " ", token);
  whole.show = ({ axis: name, token: word, value, high }) => {
    axis.textContent = name;
    token.textContent = word;
    token.hidden = !word;
    field.max = high;
    field.setAttribute("aria-label", name);
    field.show({ value });
  };
  return whole;
}

function build(place) {
  place.parts = {
    step: made("b"),
    sides: [side(place, "q"), side(place, "k")],
    number: made("b", { className: "number" }),
    how: made("span", { className: "how" }),
    from: made("span", { className: "from" }),
    spoken: made("span", { className: "spoken" }),
  };
  const { step, sides: [query, key], number, how, from, spoken } = place.parts;
  spoken.setAttribute("aria-live", "polite");
  place.tabIndex = -1;
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", "The chosen cell");
  place.append(made("span", {}, step, " · ", query, " → ", key), made("span", {}, "= ", number), how, from, spoken);
}

// Shows the line that Python has `sent`; `turn` tells Python where a person goes from here.
export function line(place, sent, turn) {
  place.turn = turn;
  if (!sent) {
    place.replaceChildren();
    return;
  }
  if (!place.firstChild) build(place);
  const { step, sides, number, how, from, spoken } = place.parts;
  step.textContent = sent.step;
  sent.sides.forEach((one, i) => sides[i].show(one));
  number.textContent = sent.shown;
  how.textContent = sent.short ? `${sent.sign} ${sent.short}` : "";
  how.style.visibility = "";

  const places = sent.sides.map(({ axis, token, value }) => token || `${axis} ${value}`);
  const words = `${sent.step}, ${places.join(" to ")}, ${sent.shown}`;
  if (!spoken.textContent) spoken.textContent = UNSPOKEN;
  else if (spoken.textContent !== words) spoken.textContent = words;

  const had = [...from.children].indexOf(document.activeElement);
  const buttons = sent.from.map(({ label, turn: to }) => {
    const button = made("button", { type: "button", textContent: label });
    button.addEventListener("click", () => turn(to));
    return button;
  });
  from.replaceChildren(...(buttons.length ? ["from "] : []), ...buttons);
  // What was pressed is gone; the next one back stands in its place.
  if (had >= 0) (from.children[Math.min(had, from.children.length - 1)] ?? place).focus({ preventScroll: true });
}

// While a hand turns a knob: the number as the page makes it; its arithmetic comes from Python when the hand lets go.
export function turning(place, number) {
  if (!place.parts) return;
  place.parts.number.textContent = Number.isFinite(number) ? String(Number(number.toPrecision(4))) : "−∞";
  place.parts.how.style.visibility = "hidden"; // it keeps its room, so that nothing jumps
}
