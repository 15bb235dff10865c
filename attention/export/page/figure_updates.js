// Adapts Python's figures to the chosen cell and the current knobs.

import { isHidden } from "./kernel.js";
import { formatNumber } from "./number_text.js";

// The outlines of a row, of columns, and of the cells where they meet, as attention.pictures.heatmap.cell_outlines draws them.
function outlines({ rows, columns }, row, outlinedColumns, color) {
  const outline = (x, y, width, height, lineWidth) => (
    { type: "rect", x0: x - 0.5, x1: x + width - 0.5, y0: y - 0.5, y1: y + height - 0.5, line: { color, width: lineWidth } }
  );
  const rowOutline = row === null ? [] : [outline(0, row, columns, 1, 1)];
  const cells = row === null ? [] : outlinedColumns.map((x) => outline(x, row, 1, 1, 3));
  return [...rowOutline, ...outlinedColumns.map((x) => outline(x, 0, 1, rows, 1)), ...cells];
}

// Outlines the chosen cell in a figure; `rowSide` and `columnSide` say which of the cell's sides give the figure's row and column.
export function markCell({ layout }, [rowSide, columnSide], cell, color) {
  const [panel] = layout.meta.panels;
  const sides = [cell.row, cell.column, cell.column]; // the third is a pair of columns that are rotated together
  const row = rowSide === null ? null : sides[rowSide];
  const column = columnSide === null ? null : sides[columnSide];
  const pair = columnSide === 2 ? [(column + panel.columns / 2) % panel.columns] : [];
  layout.shapes = outlines(panel, row, column === null ? [] : [column, ...pair], color);
  layout.meta.chosen = row === null || column === null ? null : [row, column];
  const parts = [["q", row], ["k", column]].filter(([, index]) => index !== null);
  layout.meta.file = [...layout.meta.file.slice(0, 2), parts.map(([name, index]) => `${name}${index}`).join("-")];
}

// Sets the colour range and its labels, as attention.pictures.scales.color_keys writes them beside the bar.
export function setColorRange(heat, magnitude) {
  const [low, high] = [-magnitude || -1, magnitude || 1];
  const tickvals = [low, 0, high];
  const ticktext = tickvals.map((value) => String(Number(value.toPrecision(3))));
  Object.assign(heat, { zmin: low, zmax: high, colorbar: { ...heat.colorbar, tickvals, ticktext } });
}

function setMask({ data: [heat], layout }, mask) {
  const [{ rows, columns }] = layout.meta.panels;
  const visible = (q, k) => (isHidden(mask, q, k, columns) ? 0 : 1);
  heat.z = Array.from({ length: rows }, (_, q) => Array.from({ length: columns }, (__, k) => visible(q, k)));
  const count = heat.z.flat().reduce((sum, cell) => sum + cell, 0);
  const { subtitle } = layout.title;
  subtitle.text = subtitle.text.replace(/^\d+/, count);
  layout.meta.alt = layout.meta.alt.replace(/\d+(?= of \d+ cells)/, count);
}

// Adapts a figure to changed knobs: the page computes its numbers, and its texts describe these instead of Python's.
export function applyChanges(figure, numbers) {
  const [heat] = figure.data;
  const { meta } = figure.layout;
  if (meta.step === "mask") {
    if (numbers.changes.mask) setMask(figure, numbers.changes.mask);
  } else if (heat.live && heat.live !== "scores") {
    delete heat.z;
    const { low, high, magnitude } = numbers.range(meta.step);
    if (meta.step !== "weights") setColorRange(heat, magnitude);
    meta.alt = meta.alt.replace(/numbers from \S+ to [−∞.\de]*[\d∞]/, `numbers from ${formatNumber(low)} to ${formatNumber(high)}`);
  }
}
