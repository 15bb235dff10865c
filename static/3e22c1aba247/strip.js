// The strip of steps above the maps: each with its symbol and shape, a click picks one.

import { made } from "./made.js";

// Draws the `steps`; nothing is built anew while their names stay the same, so that the focus stays too.
export function strip(place, steps, turn) {
  const names = JSON.stringify((steps ?? []).map(({ name }) => name));
  if (place.dataset.names !== names) {
    place.dataset.names = names;
    place.replaceChildren(...(steps ?? []).flatMap((step, i) => {
      const button = made("button", { type: "button", name: step.name }, made("b"), made("small"));
      button.addEventListener("click", () => button.turn());
      const arrow = made("i", { textContent: i > 1 && !step.step ? "▸" : "" });
      arrow.setAttribute("aria-hidden", "true");
      return i > 1 ? [arrow, button] : [button];
    }));
    place.setAttribute("role", "toolbar");
    place.setAttribute("aria-label", "Steps of the formula");
    place.onkeydown = (event) => walk(place, event);
  }
  for (const [i, button] of place.querySelectorAll("button").entries()) {
    const { name, symbol, shape, sums, help, chosen, view, step = name } = steps[i];
    button.firstChild.textContent = symbol;
    button.lastChild.textContent = sums ? `${shape} ${sums}` : shape;
    button.title = `${name}: ${help}`;
    button.setAttribute("aria-label", `${name}, ${shape}`);
    button.turn = () => turn(view ? { step, view } : { step });
    if (button.getAttribute("aria-pressed") !== String(chosen)) {
      button.setAttribute("aria-pressed", String(chosen));
      // Into sight, within the strip alone: scrollIntoView would move the page too.
      if (chosen && place.scrollWidth > place.clientWidth) {
        place.scrollLeft = button.offsetLeft - place.offsetLeft - place.clientWidth / 2;
      }
    }
    button.tabIndex = chosen ? 0 : -1;
  }
  if (steps && !steps.some(({ chosen }) => chosen)) place.querySelector("button").tabIndex = 0;
}

// The arrows go from step to step, as in every toolbar: all of them are one tab stop.
function walk(place, event) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!by) return;
  const all = [...place.querySelectorAll("button")];
  const at = all.indexOf(document.activeElement);
  all[(at + by + all.length) % all.length].focus();
  event.preventDefault();
}
