// The row of controls above the maps: what must follow the hand cannot wait for a server.

import { made } from "./made.js";

// A slider's place to a temperature and back: even steps from cold to hot.
const PLACES = 200;
const turnedTo = ({ low, high }, place) => Math.min(high, Math.max(low, Math.round(Math.exp(Math.log(low) + Math.log(high / low) * place / PLACES) * 20) / 20));
const placeOf = ({ low, high }, value) => Math.round((Math.log(value / low) / Math.log(high / low)) * PLACES);

function slider(place, control) {
  const input = made("input", { type: "range", name: control.name, min: 0, max: PLACES, step: 1 }), output = made("output");
  const turned = () => turnedTo(control, Number(input.value));
  const say = (value) => { output.textContent = value.toFixed(2); input.setAttribute("aria-valuetext", output.textContent); };
  input.addEventListener("input", () => { say(turned()); place.acts.follow({ [control.name]: turned() }); });
  input.addEventListener("change", () => { say(turned()); place.acts.release({ [control.name]: turned() }); });
  input.show = ({ value }) => { input.value = placeOf(control, Number(value)); say(Number(value)); };
  return [input, output];
}

function choice(place, control) {
  const { name } = control, select = made("select", { name }, ...control.options.map((option) => made("option", { value: option, textContent: option })));
  select.addEventListener("change", () => {
    const value = ["head", "layer"].includes(name) ? Number(select.value) : select.value;
    fit(place);
    if (name === "head") place.acts.follow({ head: value });
    if (name === "mask" && value !== "custom") place.acts.follow({ mask: maskNow(place) }); // whose cells only Python knows
    place.acts.release({ [name]: value });
  });
  select.show = ({ value }) => { select.value = value; press(); };
  // On a page that is about this knob, its usual options stand side by side.
  const buttons = (control.buttons ?? []).map((value) => made("button", { type: "button", textContent: value }));
  const press = () => buttons.forEach((button) => { button.ariaPressed = String(button.textContent === select.value); });
  for (const button of buttons) {
    button.addEventListener("click", () => {
      select.value = button.textContent;
      press();
      select.dispatchEvent(new Event("change"));
    });
  }
  if (!buttons.length) return [select];
  select.hidden = true;
  const group = made("span", { className: "choices", role: "group", ariaLabel: control.label }, ...buttons);
  return [select, group];
}

// A whole number; where some are `offered`, they are picked from a list, and any other is typed.
function whole(place, control) {
  const { name, low, high, offered } = control, input = made("input", { type: "number", name, min: low, max: high, step: 1, required: true });
  const release = (value) => {
    input.shown = String(value);
    if (offered) settle();
    if (name === "window" || name === "prefix") place.acts.follow({ mask: maskNow(place) });
    place.acts.release({ [name]: Number(value) });
  };
  input.addEventListener("change", () => { if (input.reportValidity()) release(input.value); }); // the browser says what it must be
  input.addEventListener("blur", () => { if (!input.checkValidity()) input.value = input.shown; });
  // What somebody is typing is theirs.
  input.show = ({ value }) => { if (document.activeElement !== input || input.value === input.shown) input.value = input.shown = value; };
  if (!offered) return [input];
  const select = made("select"), listed = offered.map(String), other = "other …";
  const options = (texts) => {
    if (select.length !== texts.length + 1 || texts.some((text, i) => select.options[i].value !== text)) {
      select.replaceChildren(...[...texts, other].map((text) => made("option", { value: text, textContent: text })));
    }
  };
  // The list says what is so; the field is there only while somebody types in it.
  const settle = () => {
    if (document.activeElement === input) select.focus({ preventScroll: true });
    input.hidden = true;
    options(listed.includes(input.shown) ? listed : [...listed, input.shown]);
    select.value = input.shown;
  };
  select.addEventListener("change", () => {
    if (select.value !== other) { release(select.value); return; }
    input.hidden = false;
    input.focus();
    input.select();
  });
  input.addEventListener("blur", settle);
  const show = input.show;
  input.hidden = true;
  input.show = (now) => { show(now); if (input.hidden) settle(); };
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
    const only = label.sent.only ?? {};
    label.hidden = Object.entries(only).some(([name, values]) => !values.includes(place.querySelector(`[name=${name}]`)?.value));
  }
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
    place.replaceChildren(...sent.map((control) => {
      const parts = KINDS[control.kind](place, control);
      for (const part of parts) if (part.matches("input, select")) part.ariaLabel = part.hidden ? `${control.label}, typed` : control.label;
      const label = made("label", { title: control.help, sent: control }, made("span", { textContent: control.label }), ...parts);
      label.dataset.name = control.name;
      return label;
    }));
    if (focused) place.querySelector(`[name=${focused}]`)?.focus({ preventScroll: true });
  }
  sent.forEach((control) => place.querySelector(`[name=${control.name}]`).show(control));
  fit(place);
}
