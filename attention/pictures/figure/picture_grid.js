// The tokens of an axis that are drawn over a picture (`layout.meta.grid`): the cell of the step at each place, and the numbers
// there while the user changes a knob.

import { colorRange } from "./live_layer.js";
import { isHidden } from "./kernel.js";

export const NO_TOKEN = -1;
export const SHARES = /\S+ on the [a-z]+(?:, \S+ on other tokens)?/; // in the subtitle of a row of weights

// The position on its axis of the token at a place; undefined where there is none.
export function positionAt({ grid }, row, column) {
  const position = grid.positions[row]?.[column];
  return position === NO_TOKEN ? undefined : position;
}

// The cell of the step that stands at a position: x is its column, y its row.
export function stepCell({ grid: { reads, at } }, position) {
  return reads === "query" ? { x: position, y: at } : { x: at, y: position };
}

// The place of a token: left, top, columns, rows; null for one that has none.
export function placeOf({ grid: { positions } }, position) {
  const top = positions.findIndex((line) => line.includes(position));
  if (top < 0 || position === NO_TOKEN) return null;
  const left = positions[top].indexOf(position);
  return [left, top, positions[top].lastIndexOf(position) - left + 1, 1];
}

// The token whose predicted box, of those of objects, is the smallest around a place; undefined where there is none.
export function boxAt({ grid: { boxes = [], reads } }, { x, y }) {
  const around = boxes.filter(([, x0, y0, x1, y1, isObject]) => isObject && x0 <= x && x <= x1 && y0 <= y && y <= y1);
  const area = ([, x0, y0, x1, y1]) => (x1 - x0) * (y1 - y0);
  if (reads !== "query" || !around.length) return undefined;
  return around.reduce((best, box) => (area(box) < area(best) ? box : best))[0];
}

// The outlines of predicted boxes, as attention.pictures.over_picture.box_marks draws them.
export function boxOutlines({ grid: { boxes = [] } }, at, shape) {
  const drawn = boxes.filter(([position, , , , , isObject]) => isObject || position === at).sort((a, b) => (a[0] === at) - (b[0] === at));
  return drawn.map(([position, x0, y0, x1, y1]) => {
    const line = { ...shape.line, width: position === at ? 4 : 1.5 };
    return { ...shape, x0, y0, x1, y1, opacity: position === at ? 1 : 0.6, line };
  });
}

// The label of a token as a screen reader says it: "row 3, column 7" for a patch.
export function spokenLabel({ data: [{ text }] }, [row, column]) {
  return text[row][column].replace(/^\d+ (patch )?(?=.)/, "");
}

// The place after an arrow key, [row, column]: the next other token in this direction. Up and down, lines without tokens are skipped,
// and a line of words is entered at its nearest word.
export function movedPlace({ grid: { positions } }, [row, column], [down, across]) {
  if (across) {
    const line = positions[row];
    for (let i = column + across; i >= 0 && i < line.length; i += across) {
      if (line[i] !== NO_TOKEN && line[i] !== line[column]) return [row, line.indexOf(line[i])];
    }
    return [row, column];
  }
  for (let i = row + down; i >= 0 && i < positions.length; i += down) {
    const places = Array.from(positions[i].keys()).filter((k) => positions[i][k] !== NO_TOKEN);
    const nearest = places.length ? places.reduce((best, k) => (Math.abs(k - column) < Math.abs(best - column) ? k : best)) : -1;
    if (nearest >= 0 && positions[i][nearest] !== positions[row][column]) return [i, nearest]; // a large patch has several lines
  }
  return [row, column];
}

// The first place with a token.
export function firstPlace({ grid: { positions } }) {
  const row = positions.findIndex((line) => line.some((position) => position !== NO_TOKEN));
  return [row, positions[row].findIndex((position) => position !== NO_TOKEN)];
}

// The largest magnitude on the pictures, below the lines of other tokens.
export function largestPatch({ top }, z) {
  let largest = 0;
  for (const line of z.slice(top)) for (const number of line) if (Math.abs(number) > largest) largest = Math.abs(number);
  return largest;
}

// The traces of a figure whose step the page computes.
export function gridTraces({ figure, live, meta }, liveLayer) {
  if (!liveLayer.changed) return figure.data;
  const { grid } = meta;
  const [heat, ...others] = figure.data;
  const { flat } = liveLayer.step(live);
  const fill = (numberAt) => grid.positions.map((line) => flat.constructor.from(line, (position) => {
    return position === NO_TOKEN ? NaN : numberAt(stepCell(meta, position));
  }));
  const columns = liveLayer.columnsOf(live);
  const isMasked = liveLayer.hasMask && ["masked_scores", "weights"].includes(live);
  const hides = ({ x, y }) => isMasked && isHidden(liveLayer.formula.mask, y, x, columns);
  const z = fill((cell) => (hides(cell) ? NaN : liveLayer.numberAt(live, cell.y, cell.x)));
  const isFitted = heat.meta?.colors === "fitted";
  const colors = isFitted ? colorRange(largestPatch(grid, z) || 1, heat.zmin < 0, heat) : liveLayer.colors(heat);
  const data = [{ ...heat, ...colors, z }];
  const hidden = fill((cell) => (hides(cell) ? 1 : NaN));
  if (hidden.some((line) => line.includes(1))) data.push({ ...meta.hidden_trace, text: heat.text, z: hidden });
  return [...data, ...others.filter(({ type }) => type !== "heatmap")];
}

// How much of a row lies on the picture and on other tokens, in the form of the words `fact`.
export function sharesLike(fact, onPicture, onOthers) {
  const others = fact.includes("other tokens") ? `, ${onOthers.toFixed(2)} on other tokens` : "";
  return `${onPicture.toFixed(2)} on the ${fact.match(/on the ([a-z]+)/)[1]}${others}`;
}

// Writes how much of a row of weights lies on the picture into the drawn subtitle; a change of it needs no new layout.
export function showShares({ element, figure, live, meta }, liveLayer) {
  let [fact] = figure.layout.title.subtitle.text.match(SHARES) ?? [];
  if (!fact) return;
  if (liveLayer?.changed && liveLayer.canCompute(live)) {
    const { at, positions, top } = meta.grid;
    const patches = new Set(positions.slice(top).flatMap((line) => Array.from(line)));
    const shares = { true: 0, false: 0 };
    for (let k = 0; k < liveLayer.columnsOf(live); k += 1) shares[patches.has(k)] += liveLayer.numberAt(live, at, k);
    fact = sharesLike(fact, shares.true, shares.false);
  }
  for (const line of element.querySelectorAll(".gtitle-subtitle, .gtitle-subtitle tspan")) {
    if (!line.childElementCount && SHARES.test(line.textContent)) line.textContent = line.textContent.replace(SHARES, fact);
  }
}

// Changes how strongly the colours cover the picture.
export function setHeat({ pictures }, opacity) {
  for (const { element, figure } of pictures) {
    const { grid, hidden_trace: hidden, panel_grid: panelGrid } = figure?.layout.meta ?? {};
    if (!grid && !panelGrid) continue;
    for (const trace of [...figure.data, hidden]) if (trace?.type === "heatmap") trace.opacity = opacity;
    for (const image of element.querySelectorAll(".hm image")) image.style.opacity = opacity;
  }
}
