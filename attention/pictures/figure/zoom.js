// The zoom of maps. Maps of one component that share an axis, by name and size, zoom together on it.

import { clipRange } from "./pooling.js";

export const AXES = ["xaxis", "yaxis"];
const META_KEYS = { xaxis: { name: 1, size: "columns" }, yaxis: { name: 0, size: "rows" } }; // of each axis in `meta`

// The key of an axis that maps share.
function axisKey({ layout }, axis) {
  const { meta, uirevision } = layout;
  const { name, size } = META_KEYS[axis];
  if (!meta.axes || meta.panels.length !== 1) return `${uirevision} ${axis}`;
  return `${meta.axes[name]} ${meta.panels[0][size]} ${[...layout[axis].range].sort((a, b) => a - b)}`; // of a pair of texts, one may be shown
}

// The visible range of an axis: all of it, or the zoomed part.
export function visibleRange(state, figure, axis) {
  const { range } = figure.layout[axis];
  const zoom = state.zooms.get(axisKey(figure, axis));
  if (!zoom) return range;
  return range[0] < range[1] ? zoom : [...zoom].reverse();
}

// Shows a range of an axis in all maps that share it; null shows all of it.
export function setZoom(state, figure, axis, range) {
  const key = axisKey(figure, axis);
  const [low, high] = [...figure.layout[axis].range].sort((a, b) => a - b);
  if (!range || (range[0] <= low && range[1] >= high)) state.zooms.delete(key);
  else state.zooms.set(key, range);
}

// Drops zooms of axes that no map has any more.
export function dropUnusedZooms(state) {
  const maps = state.figures.filter(({ layout }) => layout.meta.panels.length);
  const used = new Set(maps.flatMap((figure) => AXES.map((axis) => axisKey(figure, axis))));
  for (const key of state.zooms.keys()) if (!used.has(key)) state.zooms.delete(key);
}

// Records the zoom of this map; returns whether it changed.
export function recordZoom(state, { element, figure }) {
  const before = JSON.stringify([...state.zooms]);
  if (!figure.layout.meta.panels.length) return false;
  for (const axis of AXES) {
    const range = element._fullLayout[axis].range.map(Number);
    const isFull = figure.layout[axis].range.every((end, i) => Math.abs(end - range[i]) < 1e-9);
    if (isFull) state.zooms.delete(axisKey(figure, axis));
    else state.zooms.set(axisKey(figure, axis), range.sort((a, b) => a - b));
  }
  return JSON.stringify([...state.zooms]) !== before;
}

// The windows, by `uirevision`, of maps that Python pooled for another zoom; each is requested once. Python pools them again,
// until a cell is one number. The page pools its own maps in `paint`.
export function windowsToRequest(state) {
  const windows = {};
  for (const picture of state.pictures) {
    const { blocks, panels } = picture.figure?.layout.meta ?? {};
    if (!blocks) continue;
    const rows = clipRange(visibleRange(state, picture.figure, "yaxis"), panels[0].rows);
    const columns = clipRange(visibleRange(state, picture.figure, "xaxis"), panels[0].columns);
    const window = [...rows, ...columns];
    if (String(window) === String(blocks.window)) {
      picture.requestedWindow = null;
    } else if (picture.requestedWindow !== String(window)) {
      picture.requestedWindow = String(window);
      windows[picture.figure.layout.uirevision] = window;
    }
  }
  return windows;
}
