// A map for the keyboard: it is one tab stop, the arrows move over its cells, Enter explains the one they stand on.

import { cellUnder, panelAt } from "./hover.js";
import { made } from "./made.js";

const BY = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }; // rows, columns

const word = (name) => name.replace(/^\d+ (?=.)/, "");

// The number at a cell of the map: as the page makes it, or as Plotly draws it.
function numberAt(shown, picture, row, column) {
  const { live, view, element } = picture;
  const exact = picture.exactOf(shown);
  const made = exact?.knows(live) && view ? exact.numberAt(live, row, column) : undefined;
  const [{ z, x0 = 0, dx = 1, y0 = 0, dy = 1 }] = element.data;
  return made ?? z[Math.round((row - y0) / dy)]?.[Math.round((column - x0) / dx)];
}

// That number, and where it stands, as a sentence.
function sentence(shown, picture, [row, column]) {
  const { meta, xaxis, yaxis } = picture.figure.layout;
  const name = (axis, own, at) => word((own ?? axis).labelalias?.[at] ?? String(at));
  const own = meta.panels.length > 1 ? panelAt(meta.panels, column, row) : undefined;
  if (meta.panels.length > 1 && !own) return "between the heads";
  const { x, y } = own && meta.at ? cellUnder(shown, picture, { x: column, y: row }) : { x: column, y: row };
  const names = `${name(yaxis, meta.rows, y)} to ${name(xaxis, meta.columns, x)}`;
  const many = own && meta.panels.some(({ layer }) => layer !== own.layer);
  const head = own ? `${many ? `layer ${own.layer} ` : ""}head ${own.head}, ` : "";
  const number = numberAt(shown, picture, row, column);
  const value = Number.isFinite(number) ? String(Number(number.toPrecision(4))) : "hidden by the mask";
  return `${meta.step.replaceAll("_", " ")}, ${head}${names}, ${value}`;
}

// Puts the frame of the cursor where its cell is drawn at this zoom.
export function placeCursor({ element, cursor, cursorFrame: frame }) {
  if (!frame) return;
  frame.hidden = !cursor || document.activeElement !== element;
  if (frame.hidden) return;
  const { xaxis, yaxis } = element._fullLayout;
  const edges = (axis, at) => [at - 0.5, at + 0.5].map((edge) => axis._offset + axis.l2p(edge));
  const [row, column] = cursor;
  const [top, bottom] = edges(yaxis, row);
  const [left, right] = edges(xaxis, column);
  const meets = (axis, from, to) => to > axis._offset && from < axis._offset + axis._length;
  Object.assign(frame.style, {
    left: `${left - 2}px`,
    top: `${top - 2}px`,
    width: `${right - left + 4}px`,
    height: `${bottom - top + 4}px`,
    visibility: meets(xaxis, left, right) && meets(yaxis, top, bottom) ? "visible" : "hidden",
  });
}

// Plotly's buttons are for the mouse; as tab stops there would be 21 of them.
export function untab(element) {
  for (const button of element.querySelectorAll(".modebar :is(a, button), .modebar [tabindex]")) button.tabIndex = -1;
}

// The last row and the last column of a map; a cell of many panels is one that is drawn.
function ends(panels) {
  const far = (from, count, block) => from + count * (panels.length > 1 ? 1 : block);
  const rows = panels.map(({ y, rows: count, block }) => far(y, count, block));
  const columns = panels.map(({ x, columns: count, block }) => far(x, count, block));
  return [Math.max(...rows) - 1, Math.max(...columns) - 1];
}

// Where an arrow leads. The first one shows where one stands, if nothing is chosen here yet.
function moved({ cursor, meta: { chosen, panels } }, by) {
  const from = cursor ?? chosen;
  if (!from) return [0, 0];
  return ends(panels).map((last, side) => Math.min(last, Math.max(0, from[side] + by[side])));
}

export function keyboard(shown, picture, choose) {
  const { element } = picture;
  element.tabIndex = 0;
  element.setAttribute("aria-roledescription", "heatmap: arrow keys move over its cells, Enter explains one");
  picture.cursorFrame = made("div", { className: "at", hidden: true });
  picture.spoken = made("div", { className: "spoken" });
  picture.spoken.setAttribute("aria-live", "polite");
  element.append(picture.cursorFrame, picture.spoken);
  element.addEventListener("keydown", (event) => {
    const { panels, step } = picture.meta;
    if (event.target !== element || !panels.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const by = BY[event.key];
    if (event.key === "Enter" && picture.cursor) {
      const [y, x] = picture.cursor;
      choose({ x, y, step });
    } else if (by) {
      picture.cursor = moved(picture, by);
      placeCursor(picture);
      picture.spoken.textContent = sentence(shown, picture, picture.cursor);
    } else {
      return;
    }
    event.preventDefault();
  });
  for (const about of ["focus", "blur"]) element.addEventListener(about, () => placeCursor(picture));
}
