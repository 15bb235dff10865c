// The strip of steps above the maps: a button for each step with its symbol and shape.

import { create } from "./elements.js";

// Draws the `steps`. The buttons are reused while the names stay the same, which keeps the focus.
export function drawStrip(container, steps, setKnobs) {
  const names = JSON.stringify((steps ?? []).map(({ name }) => name));
  if (container.dataset.names !== names) {
    container.dataset.names = names;
    container.replaceChildren(...(steps ?? []).flatMap((step, i) => {
      const button = create("button", { type: "button", name: step.name }, create("b"), create("small"));
      button.addEventListener("click", () => button.choose());
      const arrow = create("i", { textContent: i > 1 && !step.step ? "▸" : "" });
      arrow.setAttribute("aria-hidden", "true");
      return i > 1 ? [arrow, button] : [button];
    }));
    container.setAttribute("role", "toolbar");
    container.setAttribute("aria-label", "Steps of the formula");
    container.onkeydown = (event) => moveFocus(container, event);
  }
  for (const [i, button] of container.querySelectorAll("button").entries()) {
    const { name, symbol, shape, sums, help, chosen, view, step = name } = steps[i];
    button.firstChild.textContent = symbol;
    button.lastChild.textContent = sums ? `${shape} ${sums}` : shape;
    button.title = `${name}: ${help}`;
    button.setAttribute("aria-label", `${name}, ${shape}`);
    button.choose = () => setKnobs(view ? { step, view } : { step });
    if (button.getAttribute("aria-pressed") !== String(chosen)) {
      button.setAttribute("aria-pressed", String(chosen));
      // Scroll within the strip only: scrollIntoView would scroll the page too.
      if (chosen && container.scrollWidth > container.clientWidth) {
        container.scrollLeft = button.offsetLeft - container.offsetLeft - container.clientWidth / 2;
      }
    }
    button.tabIndex = chosen ? 0 : -1;
  }
  if (steps && !steps.some(({ chosen }) => chosen)) container.querySelector("button").tabIndex = 0;
}

// Arrow keys move between steps, as in every toolbar: the strip is one tab stop.
function moveFocus(container, event) {
  const delta = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!delta) return;
  const buttons = [...container.querySelectorAll("button")];
  const index = buttons.indexOf(document.activeElement);
  buttons[(index + delta + buttons.length) % buttons.length].focus();
  event.preventDefault();
}
