// Pools large matrices: each block of cells becomes its number of largest magnitude, as in
// attention/pictures/downsample.py.

import { hidesKey, visibleSpan } from "./kernel.js";

export const MOST_CELLS = 256; // rows or columns of a drawn map; larger ones are pooled

// The cells [from, to) within a range of an axis; all of them if the range contains none.
export function clipRange([from, to], size) {
  const low = Math.max(0, Math.floor(Math.min(from, to) + 0.5));
  const high = Math.min(size, Math.ceil(Math.max(from, to) + 0.5));
  return low < high ? [low, high] : [0, size];
}

// The number of largest magnitude in each block of `across` columns and as many or `down` rows; NaN where a block has none. If rows
// repeat, `matrix` has the distinct rows, and `index` the row of each query.
export function poolBlocks(matrix, columns, across, [top, bottom], [left, right], index = null, down = across) {
  const rowAt = (row) => (index ? index[row] : row);
  if (across === 1 && down === 1) {
    const cut = (row) => matrix.subarray(rowAt(row) * columns + left, rowAt(row) * columns + right);
    return Array.from({ length: bottom - top }, (_, i) => cut(top + i));
  }
  const outRows = Math.ceil((bottom - top) / down);
  const outColumns = Math.ceil((right - left) / across);
  const count = matrix.length / columns;
  const pooledRows = new matrix.constructor(count * outColumns); // every row, pooled along its columns
  const isPooled = new Uint8Array(count);
  const out = Array.from({ length: outRows }, () => new matrix.constructor(outColumns).fill(NaN));
  for (let i = 0; i < bottom - top; i += 1) {
    const row = rowAt(top + i);
    const outRow = out[Math.floor(i / down)];
    if (!isPooled[row]) {
      poolRow(matrix, row * columns + left, row * columns + right, across, pooledRows, row * outColumns);
      isPooled[row] = 1;
    }
    for (let cell = 0, j = row * outColumns; cell < outColumns; cell += 1, j += 1) {
      const number = pooledRows[j];
      // "not at most" also holds for the NaN that the cell begins with.
      if (!(Math.abs(number) <= Math.abs(outRow[cell])) && !Number.isNaN(number)) outRow[cell] = number;
    }
  }
  return out;
}

// Writes the number of largest magnitude in each `block` cells of [from, to) into `out`, from `start` on.
function poolRow(matrix, from, to, block, out, start) {
  for (let i = from, cell = start; i < to; cell += 1) {
    let largest = NaN;
    let magnitude = -1;
    for (const stop = Math.min(i + block, to); i < stop; i += 1) {
      const number = Math.abs(matrix[i]);
      if (number > magnitude) { // never for NaN
        largest = matrix[i];
        magnitude = number;
      }
    }
    out[cell] = largest;
  }
}

// The blocks that the mask hides completely: 1, and NaN where a block has a visible cell.
export function hiddenBlocks(mask, columns, block, [top, bottom], [left, right]) {
  const outColumns = Math.ceil((right - left) / block);
  const out = Array.from({ length: Math.ceil((bottom - top) / block) }, () => new Float32Array(outColumns).fill(1));
  for (let q = top; q < bottom; q += 1) {
    const outRow = out[Math.floor((q - top) / block)];
    const [from, to] = visibleSpan(mask, q, columns);
    for (let k = Math.max(from, left); k < Math.min(to, right); k += 1) {
      if (!hidesKey(mask, q, k)) outRow[Math.floor((k - left) / block)] = NaN;
    }
  }
  return out;
}
