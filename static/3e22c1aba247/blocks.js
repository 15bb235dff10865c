// Large matrices as smaller ones: each block of cells as the one number in it that stands out most, as
// attention/pictures/pooling.py does it.

import { hides, span } from "./kernel.js";

export const MOST_CELLS = 256; // rows or columns of a map that are drawn; beyond, block maxima

// The cells [from, to) that lie between the two ends of an axis.
export function clipped([from, to], size) {
  const low = Math.max(0, Math.floor(Math.min(from, to) + 0.5));
  const high = Math.min(size, Math.ceil(Math.max(from, to) + 0.5));
  return low < high ? [low, high] : [0, size];
}

// The number of largest size in each block x block square; NaN where a square has none. Where rows repeat, `matrix` has
// each once, and `index` says which one every row is.
export function pooled(matrix, columns, block, [top, bottom], [left, right], index = null) {
  const rowAt = (row) => (index ? index[row] : row);
  if (block === 1) {
    const line = (row) => matrix.subarray(rowAt(row) * columns + left, rowAt(row) * columns + right);
    return Array.from({ length: bottom - top }, (_, i) => line(top + i));
  }
  const high = Math.ceil((bottom - top) / block);
  const wide = Math.ceil((right - left) / block);
  const count = matrix.length / columns;
  const narrow = new matrix.constructor(count * wide); // every row, pooled along itself
  const known = new Uint8Array(count);
  const out = Array.from({ length: high }, () => new matrix.constructor(wide).fill(NaN));
  for (let i = 0; i < bottom - top; i += 1) {
    const row = rowAt(top + i);
    const line = out[Math.floor(i / block)];
    if (!known[row]) {
      narrowed(matrix, row * columns + left, row * columns + right, block, narrow, row * wide);
      known[row] = 1;
    }
    for (let cell = 0, at = row * wide; cell < wide; cell += 1, at += 1) {
      const number = narrow[at];
      if (!(Math.abs(number) <= Math.abs(line[cell])) && !Number.isNaN(number)) line[cell] = number;
    }
  }
  return out;
}

// The number of largest size in each `block` cells of [from, to), into `out` from `into` on.
function narrowed(matrix, from, to, block, out, into) {
  for (let at = from, cell = into; at < to; cell += 1) {
    let most = NaN;
    let size = -1;
    for (const stop = Math.min(at + block, to); at < stop; at += 1) {
      const number = Math.abs(matrix[at]);
      if (number > size) { // never for NaN
        most = matrix[at];
        size = number;
      }
    }
    out[cell] = most;
  }
}

// Which blocks the mask hides altogether: 1, and NaN where a block has a visible cell.
export function covered(mask, columns, block, [top, bottom], [left, right]) {
  const wide = Math.ceil((right - left) / block);
  const out = Array.from({ length: Math.ceil((bottom - top) / block) }, () => new Float32Array(wide).fill(1));
  for (let q = top; q < bottom; q += 1) {
    const line = out[Math.floor((q - top) / block)];
    const [from, to] = span(mask, q, columns);
    for (let k = Math.max(from, left); k < Math.min(to, right); k += 1) {
      if (!hides(mask, q, k)) line[Math.floor((k - left) / block)] = NaN;
    }
  }
  return out;
}
