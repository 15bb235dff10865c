// An element with its properties and children.
export function made(tag, more = {}, ...children) {
  const element = Object.assign(document.createElement(tag), more);
  element.append(...children);
  return element;
}
