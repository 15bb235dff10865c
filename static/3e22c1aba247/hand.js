// The row of controls above the maps: what must follow the hand cannot wait for a server.

import { made, numberField } from "./made.js";

const OTHER = "other …"; // in a list of numbers: one that is typed

// A slider's place to a temperature and back: even steps from cold to hot, twenty to a whole one, and from ten on whole ones.
const PLACES = 200;

function turnedTo({ low, high }, place) {
  const exactly = low * (high / low) ** (place / PLACES);
  const fine = exactly < 10 ? 20 : 1;
  return Math.min(high, Math.max(low, Math.round(exactly * fine) / fine));
}

function placeOf({ low, high }, value) {
  return Math.round((Math.log(value / low) / Math.log(high / low)) * PLACES);
}

const optionOf = (text, name = text) => made("option", { value: text, textContent: name });

function slider(place, control) {
  const input = made("input", { type: "range", name: control.name, min: 0, max: PLACES, step: 1 });
  const output = made("output");
  const say = (value) => {
    output.textContent = value.toFixed(value < 10 ? 2 : 1);
    input.setAttribute("aria-valuetext", output.textContent);
  };
  const turn = (act) => {
    const value = turnedTo(control, Number(input.value));
    say(value);
    act({ [control.name]: value });
  };
  input.addEventListener("input", () => turn(place.acts.follow));
  input.addEventListener("change", () => turn(place.acts.release));
  input.show = ({ value }) => {
    input.value = placeOf(control, Number(value));
    say(Number(value));
  };
  return [input, output];
}

function choice(place, control) {
  const { name, names = {} } = control;
  const select = made("select", { name }, ...control.options.map((value) => optionOf(value, names[value])));
  const buttons = (control.buttons ?? []).map((value) => made("button", { type: "button", value, textContent: names[value] ?? value }));
  const press = () => {
    for (const button of buttons) button.ariaPressed = String(button.value === select.value);
  };
  select.addEventListener("change", () => {
    const value = ["head", "layer"].includes(name) ? Number(select.value) : select.value;
    fit(place);
    if (name === "head") place.acts.follow({ head: value });
    if (name === "mask") place.acts.follow({ mask: maskNow(place) });
    place.acts.release({ [name]: value });
  });
  select.show = ({ value }) => {
    select.value = value;
    press();
  };
  if (!buttons.length) return [select];

  // On a page that is about this knob, its usual options stand side by side.
  for (const button of buttons) {
    button.addEventListener("click", () => {
      select.value = button.value;
      press();
      select.dispatchEvent(new Event("change"));
    });
  }
  select.hidden = true;
  const group = made("span", { className: "choices", role: "group", ariaLabel: control.label }, ...buttons);
  return [select, group];
}

// A whole number; where some are `offered`, they are picked from a list, and any other is typed.
function whole(place, control) {
  const { name, low, high } = control;
  const release = (value) => {
    input.shown = String(value);
    if (name === "window" || name === "prefix") place.acts.follow({ mask: maskNow(place) });
    place.acts.release({ [name]: Number(value) });
  };
  const input = numberField({ name, min: low, max: high }, release);
  return control.offered ? listed(control.offered.map(String), input, release) : [input];
}

// A field with a list before it: the list says what is so; the field is there only while somebody types in it.
function listed(offered, input, release) {
  const select = made("select");
  const settle = () => {
    if (document.activeElement === input) select.focus({ preventScroll: true });
    input.hidden = true;
    const texts = [...offered, ...(offered.includes(input.shown) ? [] : [input.shown]), OTHER];
    if (String(Array.from(select.options, ({ value }) => value)) !== String(texts)) {
      select.replaceChildren(...texts.map((text) => optionOf(text)));
    }
    select.value = input.shown;
  };
  select.addEventListener("change", () => {
    if (select.value !== OTHER) {
      release(select.value);
      settle();
      return;
    }
    input.hidden = false;
    input.focus();
    input.select();
  });
  input.addEventListener("change", () => { if (input.checkValidity()) settle(); });
  input.addEventListener("blur", settle);
  const { show } = input;
  input.hidden = true;
  input.show = (now) => {
    show(now);
    if (input.hidden) settle();
  };
  return [select, input];
}

function toggle(place, { name }) {
  const input = made("input", { type: "checkbox", name });
  input.addEventListener("change", () => place.acts.release({ [name]: input.checked }));
  input.show = ({ value }) => { input.checked = value === "true"; };
  return [input];
}

const KINDS = { slider, choice, whole, switch: toggle };

// The mask as the controls say it, for the page's own arithmetic.
function maskNow(place) {
  const number = (name) => Number(place.querySelector(`[name=${name}]`)?.value ?? 0);
  return { kind: place.querySelector("[name=mask]").value, window: number("window"), prefix: number("prefix") };
}

// A control that another one's value makes sense of is there only then: the size of a window, with a window.
function fit(place) {
  for (const label of place.children) {
    const needs = Object.entries(label.sent.only ?? {});
    label.hidden = needs.some(([name, values]) => !values.includes(place.querySelector(`[name=${name}]`)?.value));
  }
}

function labelled(place, control) {
  const parts = KINDS[control.kind](place, control);
  for (const part of parts) {
    if (part.matches("input, select")) part.ariaLabel = part.hidden ? `${control.label}, typed` : control.label;
  }
  const caption = made("span", { textContent: control.label });
  const label = made("label", { title: control.help, sent: control }, caption, ...parts);
  label.dataset.name = control.name;
  return label;
}

// Draws the controls that Python names in `sent`, once; from then on they only show what is so. While one of
// them is in a hand, nothing is changed.
export function controls(place, sent, acts) {
  place.acts = acts;
  const wanted = JSON.stringify(sent.map(({ value, ...control }) => control));
  if (place.matches(":active") && place.dataset.drawn === wanted) return;
  if (place.dataset.drawn !== wanted) {
    const focused = place.contains(document.activeElement) && document.activeElement.name;
    place.dataset.drawn = wanted;
    place.replaceChildren(...sent.map((control) => labelled(place, control)));
    if (focused) place.querySelector(`[name=${focused}]`)?.focus({ preventScroll: true });
  }
  for (const control of sent) place.querySelector(`[name=${control.name}]`).show(control);
  fit(place);
}

// What is said of a formula that the source brings along; where something of it was turned, a button leads back.
export function own(place, sent, turn) {
  const back = made("button", { type: "button", textContent: "Back to its own" });
  back.addEventListener("click", () => turn(sent.back));
  place.classList.toggle("changed", Boolean(sent?.changed));
  const turned = Object.keys(sent?.back ?? {}).length > 0;
  place.replaceChildren(...(sent ? [made("span", { textContent: sent.said })] : []), ...(turned ? [back] : []));
}

// While something is in the hand, what was said of the numbers is not so.
export function turning(place) {
  if (place.firstChild) place.firstChild.textContent = "What if …";
}
