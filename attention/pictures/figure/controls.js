// The row of controls above the maps. They update the maps in the page at once, without waiting for the server.

import { create, numberField } from "./elements.js";

const OTHER = "other …"; // the option of a list of numbers that opens the field

// Converts a slider position to a value and back: logarithmic steps for a temperature, equal ones where the range begins at 0;
// rounded to 0.05 below 10, to 1 above.
const POSITIONS = 200;

function valueAt({ low, high }, position) {
  const fraction = position / POSITIONS;
  const exact = low ? low * (high / low) ** fraction : high * fraction;
  const stepsPerUnit = exact < 10 ? 20 : 1;
  return Math.min(high, Math.max(low, Math.round(exact * stepsPerUnit) / stepsPerUnit));
}

function positionOf({ low, high }, value) {
  return Math.round((low ? Math.log(value / low) / Math.log(high / low) : value / high) * POSITIONS);
}

const createOption = (value, label = value) => create("option", { value, textContent: label });

function slider(row, control) {
  const input = create("input", { type: "range", name: control.name, min: 0, max: POSITIONS, step: 1 });
  const output = create("output");
  const showValue = (value) => {
    output.textContent = value.toFixed(value < 10 ? 2 : 1);
    input.setAttribute("aria-valuetext", output.textContent);
  };
  const report = (handler) => {
    const value = valueAt(control, Number(input.value));
    showValue(value);
    handler({ [control.name]: value });
  };
  input.addEventListener("input", () => report(row.handlers.input));
  input.addEventListener("change", () => report(row.handlers.change));
  input.update = ({ value }) => {
    input.value = positionOf(control, Number(value));
    showValue(Number(value));
  };
  return [input, output];
}

function choice(row, control) {
  const { name, option_names: labels = {} } = control;
  const select = create("select", { name }, ...control.options.map((value) => createOption(value, labels[value])));
  const buttons = (control.buttons ?? []).map((value) => create("button", { type: "button", value, textContent: labels[value] ?? value }));
  const others = control.options.filter((value) => !control.buttons?.includes(value));
  const menu = control.more && create("select", { className: "more" }, createOption("", control.more), ...others.map((value) => createOption(value, labels[value])));
  const markPressed = () => {
    for (const button of buttons) button.ariaPressed = String(button.value === select.value);
    if (!menu) return;
    menu.value = others.includes(select.value) ? select.value : "";
    menu.classList.toggle("chosen", menu.value !== "");
  };
  select.addEventListener("change", () => {
    const value = ["head", "heads", "layer"].includes(name) ? Number(select.value) : select.value;
    hideInapplicable(row);
    if (name === "head") row.handlers.input({ head: value });
    if (name === "mask") row.handlers.input({ mask: readMask(row) });
    row.handlers.change({ [name]: value });
  });
  select.update = ({ value }) => {
    select.value = value;
    markPressed();
  };
  if (!buttons.length) return [select];

  // A page about this knob shows its usual options as buttons side by side.
  const choose = (value) => {
    select.value = value;
    markPressed();
    select.dispatchEvent(new Event("change"));
  };
  for (const button of buttons) button.addEventListener("click", () => choose(button.value));
  select.hidden = true;
  const group = create("span", { className: "choices", role: "group", ariaLabel: control.label }, ...buttons);
  if (!menu) return [select, group];
  menu.options[0].hidden = true;
  menu.addEventListener("change", () => choose(menu.value));
  return [select, group, menu];
}

// A whole number; `presets` are chosen from a list, any other number is typed.
function wholeNumber(row, control) {
  const { name, low, high } = control;
  const commit = (value) => {
    input.committed = String(value);
    if (name === "window" || name === "prefix") row.handlers.input({ mask: readMask(row) });
    row.handlers.change({ [name]: Number(value) });
  };
  const input = numberField({ name, min: low, max: high }, commit);
  return control.presets ? withPresets(control.presets.map(String), input, commit) : [input];
}

// A number field behind a list: the list shows the value; the field is visible only while the user types.
function withPresets(presets, input, commit) {
  const select = create("select");
  const showList = () => {
    if (document.activeElement === input) select.focus({ preventScroll: true });
    input.hidden = true;
    const values = [...presets, ...(presets.includes(input.committed) ? [] : [input.committed]), OTHER];
    if (String(Array.from(select.options, ({ value }) => value)) !== String(values)) {
      select.replaceChildren(...values.map((value) => createOption(value)));
    }
    select.value = input.committed;
  };
  select.addEventListener("change", () => {
    if (select.value !== OTHER) {
      commit(select.value);
      showList();
      return;
    }
    input.hidden = false;
    input.focus();
    input.select();
  });
  input.addEventListener("change", () => { if (input.checkValidity()) showList(); });
  input.addEventListener("blur", showList);
  const { update } = input;
  input.hidden = true;
  input.update = (control) => {
    update(control);
    if (input.hidden) showList();
  };
  return [select, input];
}

function checkbox(row, { name }) {
  const input = create("input", { type: "checkbox", name });
  input.addEventListener("change", () => row.handlers.change({ [name]: input.checked }));
  input.update = ({ value }) => { input.checked = value === "true"; };
  return [input];
}

const KINDS = { slider, choice, whole: wholeNumber, switch: checkbox };

// The mask of the controls, for the arithmetic of the page.
function readMask(row) {
  const number = (name) => Number(row.querySelector(`[name=${name}]`)?.value ?? 0);
  return { kind: row.querySelector("[name=mask]").value, window: number("window"), prefix: number("prefix") };
}

// Hides controls that do not apply to the values of others: the size of a window without a window mask.
function hideInapplicable(row) {
  for (const label of row.children) {
    const conditions = Object.entries(label.sent.when ?? {});
    label.hidden = conditions.some(([name, values]) => !values.includes(row.querySelector(`[name=${name}]`)?.value));
  }
}

function createLabel(row, control) {
  const parts = KINDS[control.kind](row, control);
  for (const part of parts) {
    if (part.matches("input, select")) part.ariaLabel = part.hidden ? `${control.label}, typed` : control.label;
  }
  const caption = create("span", { textContent: control.label });
  const label = create("label", { title: control.help, sent: control }, caption, ...parts);
  label.dataset.name = control.name;
  return label;
}

// Draws the controls that Python has `sent`, once; later messages only update their values. Nothing changes while the user
// holds one of them. `handlers.input` is called while a value changes, `handlers.change` when it is committed.
export function drawControls(row, sent, handlers) {
  row.handlers = handlers;
  const declared = JSON.stringify(sent.map(({ value, ...control }) => control));
  if (row.matches(":active") && row.dataset.drawn === declared) return;
  if (row.dataset.drawn !== declared) {
    const focused = row.contains(document.activeElement) && document.activeElement.name;
    row.dataset.drawn = declared;
    row.replaceChildren(...sent.map((control) => createLabel(row, control)));
    if (focused) row.querySelector(`[name=${focused}]`)?.focus({ preventScroll: true });
  }
  for (const control of sent) row.querySelector(`[name=${control.name}]`).update(control);
  hideInapplicable(row);
}

// Draws the note about the source's own formula; if knobs override it, a button resets them.
export function drawOverride(container, sent, setKnobs) {
  const button = create("button", { type: "button", textContent: "Reset overrides" });
  button.addEventListener("click", () => setKnobs(sent.reset));
  container.classList.toggle("changed", Boolean(sent?.changed));
  const overridden = Object.keys(sent?.reset ?? {}).length > 0;
  container.replaceChildren(...(sent ? [create("span", { textContent: sent.text })] : []), ...(overridden ? [button] : []));
}

// Marks the note as an override while the user changes a knob, until Python answers.
export function markOverridden(container) {
  if (container.firstChild) container.firstChild.textContent = "What if …";
}
