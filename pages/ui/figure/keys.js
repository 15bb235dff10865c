// A map for the keyboard: it is one tab stop, the arrows move over its cells, Enter explains the one they stand on.

import { made } from "./made.js";

const BY = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

const word = (name) => name.replace(/^\d+ (?=.)/, "");

// The number at a cell of the map, and where it stands, as a sentence.
function spoken(element, root, [row, column]) {
  const { meta, xaxis, yaxis } = element.figure.layout, [heat] = element.data;
  const live = element.figure.data[0].live;
  let number = root.exact?.knows(live) && element.view ? root.exact.numberAt(live, row, column) : undefined;
  const { x0 = 0, dx = 1, y0 = 0, dy = 1 } = heat;
  number ??= heat.z[Math.round((row - y0) / dy)]?.[Math.round((column - x0) / dx)];
  const head = heat.customdata ? `head ${heat.customdata[row]?.[column]}, ` : "";
  const names = [[yaxis, meta.rows, row], [xaxis, meta.columns, column]].map(([axis, own, at]) => word((own ?? axis).labelalias?.[at] ?? String(at)));
  const value = Number.isFinite(number) ? String(Number(number.toPrecision(4))) : "hidden by the mask";
  return `${meta.step.replaceAll("_", " ")}, ${head}${names.join(" to ")}, ${value}`;
}

// Puts the frame of the cursor where its cell is drawn at this zoom.
export function place(element) {
  const { cursor, at } = element;
  if (!at) return;
  at.hidden = !cursor || document.activeElement !== element;
  if (at.hidden) return;
  const { xaxis, yaxis } = element._fullLayout, [row, column] = cursor;
  const [left, right] = [column - 0.5, column + 0.5].map((x) => xaxis._offset + xaxis.l2p(x)), [top, bottom] = [row - 0.5, row + 0.5].map((y) => yaxis._offset + yaxis.l2p(y));
  const inside = right > xaxis._offset && left < xaxis._offset + xaxis._length && bottom > yaxis._offset && top < yaxis._offset + yaxis._length;
  Object.assign(at.style, { left: `${left - 2}px`, top: `${top - 2}px`, width: `${right - left + 4}px`, height: `${bottom - top + 4}px`, visibility: inside ? "visible" : "hidden" });
}

// Plotly's buttons are for the mouse; as tab stops there would be 21 of them.
export function untab(element) {
  for (const button of element.querySelectorAll(".modebar :is(a, button), .modebar [tabindex]")) button.tabIndex = -1;
}

export function keyboard(element, root, choose) {
  element.tabIndex = 0;
  element.setAttribute("aria-roledescription", "heatmap: arrow keys move over its cells, Enter explains one");
  element.at = made("div", { className: "at", hidden: true });
  element.says = made("div", { className: "spoken" });
  element.says.setAttribute("aria-live", "polite");
  element.append(element.at, element.says);
  element.addEventListener("keydown", (event) => {
    const { panels, chosen, step } = element.figure.layout.meta, by = BY[event.key];
    if (event.target !== element || !panels?.length || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && element.cursor) choose({ x: element.cursor[1], y: element.cursor[0], step });
    else if (by) {
      const high = Math.max(...panels.map(({ y, rows, block }) => y + rows * (panels.length > 1 ? 1 : block))) - 1;
      const wide = Math.max(...panels.map(({ x, columns, block }) => x + columns * (panels.length > 1 ? 1 : block))) - 1;
      const [row, column] = element.cursor ?? chosen ?? [0, 0];
      // The first arrow shows where one stands, if nothing is chosen here yet.
      element.cursor = element.cursor || chosen ? [Math.min(high, Math.max(0, row + by[0])), Math.min(wide, Math.max(0, column + by[1]))] : [row, column];
      place(element);
      element.says.textContent = spoken(element, root, element.cursor);
    } else return;
    event.preventDefault();
  });
  for (const about of ["focus", "blur"]) element.addEventListener(about, () => place(element));
}
