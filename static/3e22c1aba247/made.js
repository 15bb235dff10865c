// An element with its properties and children.
export function made(tag, more = {}, ...children) {
  const element = Object.assign(document.createElement(tag), more);
  element.append(...children);
  return element;
}

// A field for a whole number: one that may be goes to `release`, another becomes again what is `shown`.
export function numberField(more, release) {
  const field = made("input", { type: "number", step: 1, required: true, ...more });
  field.addEventListener("change", () => { if (field.reportValidity()) release(field.value); }); // the browser says why
  field.addEventListener("blur", () => { if (!field.checkValidity()) field.value = field.shown; });
  // What somebody is typing is theirs.
  field.show = ({ value }) => {
    if (document.activeElement !== field || field.value === field.shown) field.value = field.shown = String(value);
  };
  return field;
}
