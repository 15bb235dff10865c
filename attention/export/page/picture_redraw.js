// A row or a column over the picture of its patches, for the chosen cell and the current knobs. Python packs what stays the same
// (attention/export/packing.py); the rest is drawn as attention.pictures.over_picture draws it.

import { colorRange } from "./live_layer.js";
import { NO_TOKEN, SHARES, boxOutlines, largestPatch, placeOf, sharesLike } from "./picture_grid.js";

const OWN = "{own}"; // stands for the name of the query or key
const MASKED = ["masked_scores", "weights"]; // the steps in which hidden cells are gray

const escapeHtml = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

// The outline of a token's box; undefined for one that has no place.
function outline(meta, position, color, dash = {}) {
  const box = placeOf(meta, position);
  if (!box) return [];
  const [x, y, columns, rows] = box;
  return [{ type: "rect", x0: x - 0.5, x1: x + columns - 0.5, y0: y - 0.5, y1: y + rows - 0.5, line: { color, width: 3, ...dash } }];
}

/**
 * Completes a packed figure. `store` takes the rows of a matrix, and returns what stands for it in a message; `sources` are the
 * pictures of that message.
 */
export function drawOverPicture(figure, cell, numbers, { grids, steps, outline: color }, { store, sources }) {
  const { layout, data: [heat, ...others] } = figure;
  const { meta } = layout;
  const { grid: index, noun, head, box_shape } = meta.packed;
  delete meta.packed;
  const { positions, shapes, annotations, images, tokens } = grids[index];
  const isRow = meta.grid.reads === "query";
  const [at, chosen] = isRow ? [cell.row, cell.column] : [cell.column, cell.row];
  Object.assign(meta.grid, { at, positions });
  const numberAt = (step, position) => numbers.at(step, cell.head, ...(isRow ? [at, position] : [position, at]));
  const fill = (valueOf) => positions.map((line) => line.map((position) => (position === NO_TOKEN ? NaN : valueOf(position))));

  const isMasked = MASKED.includes(meta.step) && Boolean(steps.masked_scores);
  const isHidden = (position) => isMasked && numberAt("masked_scores", position) === -Infinity;
  const z = fill((position) => (isHidden(position) ? NaN : numberAt(meta.step, position)));
  const onPictures = z.slice(meta.grid.top).flat().filter((number) => !Number.isNaN(number));
  const text = positions.map((line) => line.map((position) => (position === NO_TOKEN ? "" : `${position} ${tokens[position]}`)));
  figure.data = [{ ...heat, ...colorRange(largestPatch(meta.grid, z) || 1, heat.zmin < 0, heat), z: store(z), text }, ...others];
  const own = meta.grid.same ? tokens[at] : escapeHtml(steps[meta.step].sides[isRow ? 0 : 1].tokens[at]);
  const name = own.startsWith(`${noun} ${at}`) ? own : `${noun} ${at} ${own}`.trim();
  const shares = (fact) => {
    const total = tokens.reduce((sum, _, position) => sum + numberAt(meta.step, position), 0);
    const share = onPictures.reduce((sum, number) => sum + number, 0);
    return sharesLike(fact, share, total - share);
  };
  const complete = (words) => words.replace(` H${head}`, () => ` H${cell.head}`).replace(SHARES, shares).replace(OWN, () => name);
  layout.title.subtitle.text = complete(layout.title.subtitle.text);
  meta.alt = complete(meta.alt);
  meta.hidden_trace.hovertemplate = complete(meta.hidden_trace.hovertemplate);
  figure.data[0].hovertemplate = complete(heat.hovertemplate);
  const hidden = fill((position) => (isHidden(position) ? 1 : NaN));
  if (hidden.flat().includes(1)) figure.data.splice(1, 0, { ...meta.hidden_trace, text, z: store(hidden) });
  meta.file = [meta.file[0], meta.file[1].replace(`-H${head}`, `-H${cell.head}`), `over-picture-${at}`];

  const box = placeOf(meta, chosen);
  meta.chosen = box && [box[1], box[0]];
  const dotted = meta.grid.same ? outline(meta, at, color, { dash: "dot" }) : [];
  const boxes = box_shape ? boxOutlines(meta, at, box_shape) : [];
  layout.shapes = [...shapes, ...boxes, ...dotted, ...outline(meta, chosen, color)];
  Object.assign(layout, { annotations, images: images.map((image) => ({ ...image, source: sources.push(image.source) - 1 })) });
}
