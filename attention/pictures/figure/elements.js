// Creates an element with properties and children.
export function create(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const written = new WeakMap();

// Writes the content of an element where it is another than it wrote last: what is written is laid out anew.
export function write(element, content) {
  if (written.get(element) === content) return;
  written.set(element, content);
  element.innerHTML = content;
}

// A field for a whole number: a valid number goes to `commit`, an invalid one is replaced by the last committed value.
export function numberField(properties, commit) {
  const field = create("input", { type: "number", step: 1, required: true, ...properties });
  field.addEventListener("change", () => { if (field.reportValidity()) commit(field.value); }); // the browser reports the reason
  field.addEventListener("blur", () => { if (!field.checkValidity()) field.value = field.committed; });
  // Does not overwrite what the user is typing.
  field.update = ({ value }) => {
    if (document.activeElement !== field || field.value === field.committed) field.value = field.committed = String(value);
  };
  return field;
}
