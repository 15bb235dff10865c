// Keyboard navigation of a map: the map is one tab stop, the arrow keys move over its cells, Enter explains the current cell.

import { cellUnder, isFree, isMosaic, panelAt } from "./hover.js";
import { create } from "./elements.js";
import { chosenCell, hideLinked, placeFrame, showLinked } from "./linked_cells.js";
import { firstPlace, movedPlace, placeOf, positionAt, spokenLabel } from "./picture_grid.js";

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }; // rows, columns

const withoutPosition = (label) => label.replace(/^\d+ (?=.)/, "");

// The number of a cell of the map: as the page computes it, or as Plotly draws it.
function numberAt(state, picture, row, column) {
  const { live, view, element } = picture;
  const layer = picture.layerOf(state);
  const computed = layer?.canCompute(live) && view ? layer.numberAt(live, row, column) : undefined;
  const [{ z, x0 = 0, dx = 1, y0 = 0, dy = 1 }] = element.data;
  return computed ?? z[Math.round((row - y0) / dy)]?.[Math.round((column - x0) / dx)];
}

const spoken = (number) => (Number.isFinite(number) ? String(Number(number.toPrecision(4))) : "hidden by the mask");

// The position and the number of a cell as a sentence.
function describeCell(state, picture, [row, column]) {
  const { meta, xaxis, yaxis } = picture.figure.layout;
  if (meta.grid) return `${spokenLabel(picture.figure, [row, column])}: ${spoken(numberAt(state, picture, row, column))}`;
  const label = (axis, override, i) => withoutPosition((override ?? axis).labelalias?.[i] ?? String(i));
  const panel = isMosaic(meta) ? panelAt(meta.panels, column, row) : undefined;
  if (isMosaic(meta) && !panel) return "between the heads";
  const { x, y } = panel && meta.offsets ? cellUnder(state, picture, { x: column, y: row }) : { x: column, y: row };
  if (isFree({ x, y })) return "no token";
  const labels = `${label(yaxis, meta.rows, y)} to ${label(xaxis, meta.columns, x)}`;
  const severalLayers = panel && meta.panels.some(({ layer }) => layer !== panel.layer);
  const head = panel ? `${severalLayers ? `layer ${panel.layer} ` : ""}head ${panel.head}, ` : "";
  const number = numberAt(state, picture, row, column);
  return `${meta.step.replaceAll("_", " ")}, ${head}${labels}, ${spoken(number)}`;
}

// Moves the outline of the keyboard cursor to its cell at the current zoom.
export function placeCursor({ element, cursor, cursorFrame: frame, figure }) {
  if (!frame) return;
  const { meta } = figure.layout;
  if (!cursor || document.activeElement !== element) placeFrame(element, frame, null);
  else placeFrame(element, frame, meta.grid ? placeOf(meta, positionAt(meta, ...cursor)) : [cursor[1], cursor[0], 1, 1]);
}

// Whether cells of a figure can be chosen: of a map or a picture, not of a chart.
export const isClickable = ({ panels, grid }) => panels.length > 0 || Boolean(grid);

// Describes the keys of a figure to a screen reader.
export function describeKeys({ element, meta }) {
  if (!isClickable(meta)) return;
  element.setAttribute("aria-roledescription", meta.grid
    ? `picture: arrow keys move over its patches, Enter explains one, Shift and Enter make it the ${meta.grid.reads}`
    : "heatmap: arrow keys move over its cells, Enter explains one");
}

// The last row and the last column of a map; with many panels, of the drawn cells.
function lastCell(panels) {
  const end = (from, count, block) => from + count * (panels.length > 1 ? 1 : block);
  const rows = panels.map(({ y, rows: count, block }) => end(y, count, block));
  const columns = panels.map(({ x, columns: count, block }) => end(x, count, block));
  return [Math.max(...rows) - 1, Math.max(...columns) - 1];
}

// The cell after an arrow key. The first key press chooses the first cell if no cell is chosen.
function movedCursor({ cursor, meta }, delta) {
  const { chosen, panels, grid } = meta;
  const from = cursor ?? chosen;
  if (grid) return from ? movedPlace(meta, from, delta) : firstPlace(meta);
  if (!from) return [0, 0];
  return lastCell(panels).map((last, side) => Math.min(last, Math.max(0, from[side] + delta[side])));
}

export function enableKeyboard(state, picture, choose) {
  const { element } = picture;
  element.tabIndex = 0;
  picture.cursorFrame = create("div", { className: "cursor", hidden: true });
  picture.liveRegion = create("div", { className: "visually-hidden" });
  picture.liveRegion.setAttribute("aria-live", "polite");
  element.append(picture.cursorFrame, picture.liveRegion);
  element.addEventListener("keydown", (event) => {
    const { step } = picture.meta;
    if (event.target !== element || !isClickable(picture.meta) || event.ctrlKey || event.metaKey || event.altKey) return;
    const delta = ARROWS[event.key];
    if (event.key === "Enter" && picture.cursor) {
      const [row, column] = picture.cursor;
      const { x, y } = picture.meta.grid ? chosenCell(state, picture, { x: column, y: row }, event.shiftKey) : { x: column, y: row };
      choose({ x, y, step });
    } else if (delta) {
      picture.cursor = movedCursor(picture, delta);
      placeCursor(picture);
      showLinked(state, picture, { x: picture.cursor[1], y: picture.cursor[0] });
      picture.liveRegion.textContent = describeCell(state, picture, picture.cursor);
    } else {
      return;
    }
    event.preventDefault();
  });
  for (const type of ["focus", "blur"]) element.addEventListener(type, () => placeCursor(picture));
  element.addEventListener("blur", () => hideLinked(state));
}
