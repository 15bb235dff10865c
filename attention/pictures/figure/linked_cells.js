// Shows in a picture which patches the cell under the pointer of a map belongs to, and in the maps the cell of a patch.

import { cellUnder } from "./hover.js";
import { create } from "./elements.js";
import { boxAt, placeOf, positionAt, stepCell } from "./picture_grid.js";

// Moves a frame around a place of a figure: left, top, columns, rows; null hides it.
export function placeFrame(element, frame, place) {
  frame.hidden = !place;
  if (!place) return;
  const { xaxis, yaxis } = element._fullLayout;
  const [left, top, columns, rows] = place;
  const edges = (axis, from, size) => [from - 0.5, from + size - 0.5].map((edge) => axis._offset + axis.l2p(edge));
  const [x0, x1] = edges(xaxis, left, columns);
  const [y0, y1] = edges(yaxis, top, rows);
  const overlaps = (axis, from, to) => to > axis._offset && from < axis._offset + axis._length;
  Object.assign(frame.style, {
    left: `${x0 - 2}px`,
    top: `${y0 - 2}px`,
    width: `${x1 - x0 + 4}px`,
    height: `${y1 - y0 + 4}px`,
    visibility: overlaps(xaxis, x0, x1) && overlaps(yaxis, y0, y1) ? "visible" : "hidden",
  });
}

// The names of the axes of a picture: that of the drawn tokens, and that of its query, key or feature.
const axesOf = ({ axes, grid }) => (grid.reads === "query" ? [axes[1], axes[0]] : axes);

// The places in a picture of the cell at x, y of a map: of the token that it has there, and of the other if it is one as well.
function placesInPicture(picture, { axes }, { x, y }) {
  const { meta } = picture;
  const [drawn, fixed] = axesOf(meta);
  const at = { [axes[0]]: y, [axes[1]]: x };
  const place = (axis) => (axis in at ? placeOf(meta, at[axis]) : null);
  return [place(drawn), meta.grid.same ? place(fixed) : null];
}

// The place in a map of the token at a position of a picture: a cell, or a row or column where the map has one of the axes.
function placeInMap({ meta: { axes, panels } }, meta, position) {
  if (panels.length !== 1 || !axes) return null;
  const [drawn, fixed] = axesOf(meta);
  if (!axes.includes(drawn)) return null;
  const at = { [drawn]: position, ...(axes.includes(fixed) ? { [fixed]: meta.grid.at } : {}) };
  const [y, x] = axes.map((axis) => at[axis]);
  const [{ rows, columns }] = panels;
  return [x ?? 0, y ?? 0, x === undefined ? columns : 1, y === undefined ? rows : 1];
}

// The place in a picture of the same patch of another one, by its row and column: positions may differ between two texts.
function samePatch({ meta, figure: { data: [{ text }] } }, label) {
  const place = (line, row) => [row, line.findIndex((other) => withoutPosition(other) === label)];
  const [row, column] = text.map(place).find(([, k]) => k >= 0) ?? [];
  return label.startsWith("patch ") && row !== undefined ? placeOf(meta, positionAt(meta, row, column)) : null;
}

const withoutPosition = (label) => label.replace(/^\d+ /, "");

function frames(picture) {
  picture.linkFrames ??= [create("div", { className: "link", hidden: true }), create("div", { className: "link other", hidden: true })];
  picture.element.append(...picture.linkFrames);
  return picture.linkFrames;
}

// Shows everywhere else what stands at a point of a picture or of a map, {x, y} in its cells.
export function showLinked(state, source, point) {
  hideLinked(state);
  const { grid } = source.meta;
  const position = grid && positionAt(source.meta, point.y, point.x);
  if (grid ? position === undefined : source.meta.panels.length !== 1 || !source.meta.axes) return;
  for (const picture of state.pictures) {
    if (picture === source || !picture.element._fullLayout || !picture.figure) continue;
    const places = grid
      ? [picture.meta.grid ? samePatch(picture, withoutPosition(source.figure.data[0].text[point.y][point.x])) : placeInMap(picture, source.meta, position)]
      : picture.meta.grid ? placesInPicture(picture, source.meta, cellUnder(state, source, point)) : [];
    if (!places.some(Boolean)) continue;
    frames(picture).forEach((frame, i) => placeFrame(picture.element, frame, places[i]));
  }
}

export function hideLinked({ pictures }) {
  for (const { linkFrames } of pictures) for (const frame of linkFrames ?? []) frame.hidden = true;
}

// The cell of the step at a point of a figure that can be chosen; null where there is none. With `swap`, the token becomes the
// query itself, or the key, of the picture.
export function chosenCell(state, picture, point, swap = false) {
  const { meta } = picture;
  if (!meta.grid) return cellUnder(state, picture, point);
  const position = positionAt(meta, point.y, point.x);
  if (position === undefined) return null;
  const query = swap ? boxAt(meta, point) : undefined;
  if (query !== undefined) return { x: position, y: query };
  return swap && meta.grid.same ? { x: position, y: position } : stepCell(meta, position);
}
