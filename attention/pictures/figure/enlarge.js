// Enlarges a map over the page, so that each token has its label: a button stands on a map that labels only some of them.

import { create } from "./elements.js";

const PLACE = 14; // pixels of a row or column with a label
const LARGEST = 8000; // pixels of a figure

export const isEnlarged = (element) => element.popover === "manual";

// The pixels of a side of an enlarged figure: those of the screen, or as many as the labels of its axis need.
export function enlargedSize(screen, frame, { range: [from, to] }) {
  return Math.max(screen, Math.min(LARGEST, frame + PLACE * Math.abs(to - from)));
}

function toggle(picture) {
  const { element, enlarger } = picture;
  picture.wasEnlarged = true;
  if (isEnlarged(element)) {
    element.hidePopover();
    element.popover = null;
  } else {
    element.popover = "manual"; // a click beside it, or another map, does not close it
    element.showPopover();
  }
  enlarger.textContent = isEnlarged(element) ? "Close" : "Enlarge";
}

// Shows the button while `offered`, and while the map is enlarged.
export function offerEnlarging(picture, offered) {
  const { element } = picture;
  if (!picture.enlarger && !offered) return;
  if (!picture.enlarger) {
    picture.enlarger = create("button", { type: "button", className: "enlarge", textContent: "Enlarge" });
    picture.enlarger.addEventListener("click", () => toggle(picture));
    element.addEventListener("keydown", ({ key }) => { if (key === "Escape" && isEnlarged(element)) toggle(picture); });
  }
  picture.enlarger.hidden = !(offered && element.showPopover) && !isEnlarged(element);
  if (!picture.enlarger.isConnected) element.append(picture.enlarger);
}
