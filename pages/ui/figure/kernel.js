// The part of the formula that follows the hand: scores, mask and softmax of one head, in the page.
//
// Python stays the truth. What stands here is pinned to torch by tests/test_browser_kernel.py. Matrices
// are flat, row by row; a row of `scores` is a query, a column a key.

// Q K^T, every product summed in double precision and rounded once, as attend.dot_scores does.
export function dotScores(query, key, width) {
  const rows = query.length / width, columns = key.length / width;
  const scores = new query.constructor(rows * columns);
  for (let q = 0; q < rows; q += 1) {
    const from = q * width;
    for (let k = 0; k < columns; k += 1) {
      let sum = 0;
      for (let i = 0, at = k * width; i < width; i += 1, at += 1) sum += query[from + i] * key[at];
      scores[q * columns + k] = sum;
    }
  }
  return scores;
}

// X W, summed and rounded in the same way; `rows` and `columns` are lists of rows.
export function product(rows, columns) {
  const width = columns[0].length, out = rows.map(() => new rows[0].constructor(width)), sums = new Float64Array(width);
  rows.forEach((row, i) => {
    sums.fill(0);
    for (let k = 0; k < row.length; k += 1) for (let j = 0, line = columns[k]; j < width; j += 1) sums[j] += row[k] * line[j];
    out[i].set(sums);
  });
  return out;
}

// The keys that a query may see: a span, without those that are hidden for everybody.
// `mask` is {kind, window, prefix, real, bits}: `real` (by key) is 0 for padding; `bits`, a row for every query as message.js
// gives any matrix, says it all by itself.
export function span(mask, q, columns) {
  if (mask.bits) return [0, columns];
  let from = 0, to = columns;
  if (mask.kind.includes("causal") || mask.kind === "prefix") to = Math.min(columns, q + 1);
  if (mask.kind.includes("window")) { from = Math.max(0, q - mask.window); to = Math.min(to, q + mask.window + 1); }
  if (mask.kind === "prefix") to = Math.max(to, Math.min(columns, mask.prefix));
  return [Math.min(from, to), to];
}

function hides(mask, q, k) {
  return (mask.bits && !mask.bits[q][k]) || (mask.real && !mask.real[k]);
}

// Whether a mask hides one cell.
export function hidden(mask, q, k, columns) {
  const [from, to] = span(mask, q, columns);
  return k < from || k >= to || Boolean(hides(mask, q, k));
}

// The shares of one query into `out`, from `at` on. Rows sum to 1; a row that sees no key is 0.
// `divisor` is sqrt(d_k) times the temperature; 0 is the limit: the largest takes all, ties share. Scaled
// scores are rounded as torch rounds them: at a low temperature the last bit of a large one is a visible share.
export function softmaxRow(scores, at, q, columns, mask, divisor, out) {
  const [from, to] = span(mask, q, columns);
  const sparse = Boolean(mask.bits || mask.real);
  const round = scores instanceof Float32Array ? Math.fround : Number;
  const by = round(divisor);
  let highest = -Infinity;
  for (let k = from; k < to; k += 1) if (scores[at + k] > highest && !(sparse && hides(mask, q, k))) highest = scores[at + k];
  if (to - from < columns || sparse || highest === -Infinity) out.fill(0, at, at + columns);
  if (highest === -Infinity) return;
  const top = by === 0 ? highest : round(highest / by);
  let total = 0;
  for (let k = at + from; k < at + to; k += 1) {
    if (sparse && hides(mask, q, k - at)) continue;
    const share = by === 0 ? Number(scores[k] === highest) : Math.exp(round(scores[k] / by) - top);
    out[k] = share;
    total += share;
  }
  for (let k = at + from; k < at + to; k += 1) out[k] /= total;
}

export function softmax(scores, columns, mask, divisor, out = new scores.constructor(scores.length)) {
  for (let at = 0, q = 0; at < scores.length; at += columns, q += 1) softmaxRow(scores, at, q, columns, mask, divisor, out);
  return out;
}

// A V of one head, added into `out` from column `shift` on; `out` has `across` columns.
export function mixValues(weights, { flat, width, count }, out, across, shift) {
  const rows = weights.length / count, sums = new Float64Array(width);
  for (let q = 0; q < rows; q += 1) {
    sums.fill(0);
    for (let k = 0; k < count; k += 1) {
      const weight = weights[q * count + k];
      if (weight !== 0) for (let i = 0, at = k * width; i < width; i += 1, at += 1) sums[i] += weight * flat[at];
    }
    for (let i = 0; i < width; i += 1) out[q * across + shift + i] += sums[i];
  }
  return out;
}

// The number of largest size in each block x block square; NaN where a square has none. Where rows repeat, `matrix` has each
// once, and `index` says which one every row is.
export function pooled(matrix, columns, block, [top, bottom], [left, right], index = null) {
  const rowAt = (row) => (index ? index[row] : row);
  if (block === 1) return Array.from({ length: bottom - top }, (_, i) => matrix.subarray(rowAt(top + i) * columns + left, rowAt(top + i) * columns + right));
  const high = Math.ceil((bottom - top) / block), wide = Math.ceil((right - left) / block), count = matrix.length / columns;
  const narrow = new matrix.constructor(count * wide), known = new Uint8Array(count); // every row, pooled along itself
  const out = Array.from({ length: high }, () => new matrix.constructor(wide).fill(NaN));
  for (let i = 0; i < bottom - top; i += 1) {
    const row = rowAt(top + i), line = out[Math.floor(i / block)];
    if (!known[row]) {
      narrowed(matrix, row * columns + left, row * columns + right, block, narrow, row * wide);
      known[row] = 1;
    }
    for (let cell = 0, at = row * wide; cell < wide; cell += 1, at += 1) {
      if (!(Math.abs(narrow[at]) <= Math.abs(line[cell])) && narrow[at] === narrow[at]) line[cell] = narrow[at];
    }
  }
  return out;
}

// The number of largest size in each `block` cells of [from, to), into `out` from `into` on.
function narrowed(matrix, from, to, block, out, into) {
  for (let at = from, cell = into; at < to; cell += 1) {
    let most = NaN, size = -1;
    for (const stop = Math.min(at + block, to); at < stop; at += 1) {
      const number = Math.abs(matrix[at]);
      if (number > size) { most = matrix[at]; size = number; } // never for NaN
    }
    out[cell] = most;
  }
}

// Which blocks the mask hides altogether: 1, and NaN where a block has a visible cell.
export function covered(mask, columns, block, [top, bottom], [left, right]) {
  const high = Math.ceil((bottom - top) / block), wide = Math.ceil((right - left) / block);
  const out = Array.from({ length: high }, () => new Float32Array(wide).fill(1));
  for (let q = top; q < bottom; q += 1) {
    const line = out[Math.floor((q - top) / block)], [from, to] = span(mask, q, columns);
    for (let k = Math.max(from, left); k < Math.min(to, right); k += 1) {
      if (!hides(mask, q, k)) line[Math.floor((k - left) / block)] = NaN;
    }
  }
  return out;
}
