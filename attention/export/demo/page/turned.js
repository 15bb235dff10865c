// What Python has drawn of a state, with the chosen cell marked, and under the knobs as they are now.

import { hidden } from "./kernel.js";
import { shown } from "./printed.js";

// The frames of a row, of columns, and of the cells where they meet: attention.pictures.heatmap.marks.
function marks({ rows, columns }, row, across, color) {
  const frame = (x, y, wide, high, width) => (
    { type: "rect", x0: x - 0.5, x1: x + wide - 0.5, y0: y - 0.5, y1: y + high - 0.5, line: { color, width } }
  );
  const rowFrame = row === null ? [] : [frame(0, row, columns, 1, 1)];
  const cells = row === null ? [] : across.map((x) => frame(x, row, 1, 1, 3));
  return [...rowFrame, ...across.map((x) => frame(x, 0, 1, rows, 1)), ...cells];
}

// Marks the chosen cell in a figure; `sides` says which of its sides give the figure's row and column.
export function mark({ layout }, [rowSide, columnSide], cell, color) {
  const [panel] = layout.meta.panels;
  const sides = [cell.row, cell.column, cell.column]; // the last is a pair of columns, which are turned together
  const row = rowSide === null ? null : sides[rowSide];
  const column = columnSide === null ? null : sides[columnSide];
  const pair = columnSide === 2 ? [(column + panel.columns / 2) % panel.columns] : [];
  layout.shapes = marks(panel, row, column === null ? [] : [column, ...pair], color);
  layout.meta.chosen = row === null || column === null ? null : [row, column];
  const names = [["q", row], ["k", column]].filter(([, at]) => at !== null);
  layout.meta.file = [...layout.meta.file.slice(0, 2), names.map(([name, at]) => `${name}${at}`).join("-")];
}

// Both ends of the colours, as attention.pictures.scales.painted writes them beside the bar.
function recolored(heat, size) {
  const [low, high] = [-size || -1, size || 1];
  const tickvals = [low, 0, high];
  const ticktext = tickvals.map((end) => String(Number(end.toPrecision(3))));
  Object.assign(heat, { zmin: low, zmax: high, colorbar: { ...heat.colorbar, tickvals, ticktext } });
}

function remasked({ data: [heat], layout }, mask) {
  const [{ rows, columns }] = layout.meta.panels;
  const seen = (q, k) => (hidden(mask, q, k, columns) ? 0 : 1);
  heat.z = Array.from({ length: rows }, (_, q) => Array.from({ length: columns }, (__, k) => seen(q, k)));
  const count = heat.z.flat().reduce((all, one) => all + one, 0);
  const { subtitle } = layout.title;
  subtitle.text = subtitle.text.replace(/^\d+/, count);
  layout.meta.alt = layout.meta.alt.replace(/\d+(?= of \d+ cells)/, count);
}

// A figure under other knobs: its numbers are left to the page, and what was said of Python's is said of these.
export function turn(figure, numbers) {
  const [heat] = figure.data;
  const { meta } = figure.layout;
  if (meta.step === "mask") {
    if (numbers.turned.mask) remasked(figure, numbers.turned.mask);
  } else if (heat.live && heat.live !== "scores") {
    delete heat.z;
    const { low, high, size } = numbers.ends(meta.step);
    if (meta.step !== "weights") recolored(heat, size);
    meta.alt = meta.alt.replace(/numbers from \S+ to [−∞.\de]*[\d∞]/, `numbers from ${shown(low)} to ${shown(high)}`);
  }
}
