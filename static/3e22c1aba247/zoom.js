// What somebody has zoomed to. Maps of one component that have the same axis, by its name and size, zoom along on it.

import { clipped } from "./blocks.js";

export const AXES = ["xaxis", "yaxis"];
const ACROSS = { xaxis: { title: 1, size: "columns" }, yaxis: { title: 0, size: "rows" } }; // where `meta` has an axis

// What an axis is known by.
function axisOf({ layout: { meta, uirevision } }, axis) {
  const { title, size } = ACROSS[axis];
  if (!meta.axes || meta.panels.length !== 1) return `${uirevision} ${axis}`;
  return `${meta.axes[title]} ${meta.panels[0][size]}`;
}

// What is seen of an axis: all of it, or what somebody has zoomed to.
export function seenOf(shown, figure, axis) {
  const { range } = figure.layout[axis];
  const zoom = shown.zooms.get(axisOf(figure, axis));
  if (!zoom) return range;
  return range[0] < range[1] ? zoom : [...zoom].reverse();
}

// Zooms that no map has an axis for any more are forgotten.
export function keepZooms(shown) {
  const maps = shown.figures.filter(({ layout }) => layout.meta.panels.length);
  const there = new Set(maps.flatMap((figure) => AXES.map((axis) => axisOf(figure, axis))));
  for (const axis of shown.zooms.keys()) if (!there.has(axis)) shown.zooms.delete(axis);
}

// Takes over what somebody has zoomed this map to; whether that is new.
export function zoomed(shown, { element, figure }) {
  const before = JSON.stringify([...shown.zooms]);
  if (!figure.layout.meta.panels.length) return false;
  for (const axis of AXES) {
    const range = element._fullLayout[axis].range.map(Number);
    const whole = figure.layout[axis].range.every((end, i) => Math.abs(end - range[i]) < 1e-9);
    if (whole) shown.zooms.delete(axisOf(figure, axis));
    else shown.zooms.set(axisOf(figure, axis), range.sort((one, other) => one - other));
  }
  return JSON.stringify([...shown.zooms]) !== before;
}

// The maps that Python has cut and that are zoomed to something else now: their windows, by `uirevision`, for Python to
// cut them anew, until a cell is one number again. Each is asked for once. The page cuts its own in `paint`.
export function windowsToCut(shown) {
  const windows = {};
  for (const picture of shown.pictures) {
    const { blocks, panels } = picture.figure?.layout.meta ?? {};
    if (!blocks) continue;
    const rows = clipped(seenOf(shown, picture.figure, "yaxis"), panels[0].rows);
    const columns = clipped(seenOf(shown, picture.figure, "xaxis"), panels[0].columns);
    const window = [...rows, ...columns];
    if (String(window) === String(blocks.window)) {
      picture.askedWindow = null;
    } else if (picture.askedWindow !== String(window)) {
      picture.askedWindow = String(window);
      windows[picture.figure.layout.uirevision] = window;
    }
  }
  return windows;
}
