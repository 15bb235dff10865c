// Finds the cell under the pointer, and shows the tooltip of a cell that stands for a block.

import { quoted } from "./ticks.js";

const SINGLE = "1 × 1"; // in a map of many layers, where only the page knows the head of a cell

// The cell at the position of an event. Plotly reports for a click the cell that was hovered up to 50 ms before,
// which is another one after a quick click or a tap.
export function pointAt(element, { clientX, clientY }) {
  const { xaxis, yaxis } = element._fullLayout;
  const [{ x0, dx, y0, dy, z }] = element._fullData;
  const box = element.querySelector(".main-svg").getBoundingClientRect(); // an enlarged map scrolls in its element
  const column = Math.round((xaxis.p2l(clientX - box.x - xaxis._offset) - x0) / dx);
  const row = Math.round((yaxis.p2l(clientY - box.y - yaxis._offset) - y0) / dy);
  return { x: x0 + column * dx, y: y0 + row * dy, z: z[row]?.[column] };
}

// The cell whose number is drawn at a point, and the size of its block.
export function cellUnder(state, picture, { x, y, z }) {
  const { blocks, offsets, panel_grid: grid, panels } = picture.meta;
  const { view } = picture;
  if (view?.block > 1) {
    return { ...picture.layerOf(state).cellAt(picture.live, view, x, y), block: `${view.block} × ${view.block}` };
  }
  if (!offsets) return { x, y, z };
  if (blocks) {
    const { down, across, top, left } = blocks;
    const row = Math.floor((y - top) / down);
    const column = Math.floor((x - left) / across);
    const offset = offsets[row][column];
    return {
      x: left + column * across + (offset % across),
      y: top + row * down + Math.floor(offset / across),
      z,
      block: `${down} × ${across}`,
    };
  }
  const { block, head, layer, ...panel } = panelAt(panels, x, y);
  const offset = offsets[y][x];
  const cell = {
    x: (x - panel.x) * block + (offset % block),
    y: (y - panel.y) * block + Math.floor(offset / block),
  };
  return {
    ...(grid ? tokenCell(grid, cell) : cell),
    z,
    head: `L${layer} H${head}`,
    block: `${block} × ${block}`,
  };
}

// The cell of the map whose token lies at this place of a panel over a picture; without a token, its position is -1.
function tokenCell({ positions, reads, at }, { x, y }) {
  const position = positions[y]?.[x] ?? -1;
  return reads === "query" ? { x: position, y: at } : { x: at, y: position };
}

// Whether there is no token at this cell of a figure over a picture.
export const isFree = ({ x, y }) => x < 0 || y < 0;

// Whether cells are of many heads, or of one at places of its own: Python finds the head and the cell of a place.
export const isMosaic = ({ blocks, offsets, panels }) => panels.length > 1 || Boolean(offsets && !blocks);

// The panel that contains this cell; undefined between the panels.
export function panelAt(panels, x, y) {
  return panels.find((panel) => x >= panel.x && x < panel.x + panel.columns && y >= panel.y && y < panel.y + panel.rows);
}

// The number as the line of the chosen cell has it.
export const shown = (number) => String(Number(number.toPrecision(4))).replaceAll("-", "−");

// Shows the tooltip of the block under the pointer, beside it: the position of its number, in the form of Plotly's hover label.
export function showTip(state, picture, point, { clientX, clientY }) {
  const { x, y, z, block, head } = cellUnder(state, picture, point);
  picture.tip.hidden = true;
  const isHidden = point.curveNumber > 0; // the first trace has the numbers, another one marks cells that the mask hides
  if (!block || isFree({ x, y })) return;
  const { meta, xaxis, yaxis } = picture.figure.layout;
  const label = (axis, override, i) => quoted((override ?? axis).labelalias ?? {})[i] ?? i;
  const metric = meta.metrics?.[meta.panels.indexOf(panelAt(meta.panels, point.x, point.y))];
  picture.tip.innerHTML = [
    [head, metric, block === SINGLE ? "" : `largest of ${block}`].filter(Boolean).join(", "),
    `${meta.axes[0]} ${label(yaxis, meta.rows, y)}`,
    `${meta.axes[1]} ${label(xaxis, meta.columns, x)}`,
    `<b>${isHidden || !Number.isFinite(z) ? "hidden by the mask" : shown(z)}</b>`,
  ].join("<br>");
  picture.tip.hidden = false;
  const box = picture.element.getBoundingClientRect();
  const [left, top] = [clientX - box.x, clientY - box.y];
  const { offsetWidth: width, offsetHeight: height } = picture.tip;
  picture.tip.style.left = `${left + 14 + width > box.width ? Math.max(0, left - 14 - width) : left + 14}px`;
  picture.tip.style.top = `${Math.max(0, top - height - 8)}px`;
}
