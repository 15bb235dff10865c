// The part of the formula that follows the hand: scores, what is done to them, and how they are shared out.
//
// Python stays the truth. What stands here is pinned to torch by tests/test_browser_kernel.py. Matrices are flat, row
// by row; a row of scores is a query, a column a key. What one can choose is an entry of a table: a kind of score in
// SCORES, a step between scores and weights in CHAIN, a way of sharing out in SHARES.
//
// `formula` is {score, divisor, temperature, cap, share, mask}, as `live.js` keeps it.

// The kinds of score: every query with every key, `width` numbers each.
export const SCORES = {
  // Q K^T, every product summed in double precision and rounded once, as attend.dot_scores does.
  dot(query, key, width) {
    const rows = query.length / width;
    const columns = key.length / width;
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
  },

  // The same of rows that have the length 1; a row of zeros stays one.
  cosine(query, key, width) {
    const unit = (matrix) => {
      const out = Float64Array.from(matrix);
      for (let at = 0; at < out.length; at += width) {
        const row = out.subarray(at, at + width);
        const length = Math.sqrt(row.reduce((sum, number) => sum + number * number, 0));
        if (length) row.forEach((number, i) => { row[i] = number / length; });
      }
      return out;
    };
    return new query.constructor(SCORES.dot(unit(query), unit(key), width));
  },

  // The tanh of query plus key, column by column, weighed and added.
  additive(query, key, width, weights) {
    const columns = key.length / width;
    const scores = new query.constructor((query.length / width) * columns);
    for (let at = 0; at < scores.length; at += 1) {
      const q = Math.floor(at / columns) * width;
      const k = (at % columns) * width;
      let sum = 0;
      for (let i = 0; i < width; i += 1) sum += weights[i] * Math.tanh(query[q + i] + key[k + i]);
      scores[at] = sum;
    }
    return scores;
  },
};

// The steps from scores to weights, in their order. Each changes the `row` of a query in place, some of its scores or
// all; a row of single precision rounds what is written into it, as torch rounds every step.
export const CHAIN = [
  {
    name: "scaled_scores",
    // At temperature 0 the map shows what is divided by the divisor alone; the weights do not come this way then.
    make(row, { divisor, temperature }) {
      const round = row instanceof Float32Array ? Math.fround : Number;
      const by = round(temperature === 0 ? divisor : divisor * temperature);
      for (let i = 0; i < row.length; i += 1) row[i] /= by;
    },
  },
  {
    name: "capped_scores",
    make(row, { cap }) {
      if (cap) for (let i = 0; i < row.length; i += 1) row[i] = cap * Math.tanh(row[i] / cap);
    },
  },
];

// The ways to share out: each makes, in place, the scores that a query may see its weights; `keys` is how many keys
// there are, seen or not.
export const SHARES = {
  // Every share is e^score, and they sum to 1. The highest score is taken off first, so that nothing overflows.
  softmax(row) {
    const highest = largest(row);
    if (highest === -Infinity) row.fill(0);
    else exponentials(row, highest, 0);
  },

  // The same with one added to the sum: shares of less than 1.
  softmax1(row) {
    const highest = Math.max(0, largest(row));
    exponentials(row, highest, Math.exp(-highest));
  },

  // Each by itself, less the logarithm of the number of keys.
  sigmoid(row, keys) {
    for (let i = 0; i < row.length; i += 1) row[i] = 1 / (1 + keys * Math.exp(-row[i]));
  },

  // What each score has above the threshold that lets them sum to 1.
  sparsemax(row) {
    const ordered = Float64Array.from(row).sort().reverse();
    let sum = 0;
    let threshold = 0;
    ordered.forEach((score, i) => {
      sum += score;
      if (1 + (i + 1) * score > sum) threshold = (sum - 1) / (i + 1);
    });
    for (let i = 0; i < row.length; i += 1) row[i] = Math.max(0, row[i] - threshold);
  },
};

// Every number as e^(number − highest), over the `total` of these and what is in it already.
function exponentials(row, highest, total) {
  for (let i = 0; i < row.length; i += 1) {
    const share = Math.exp(row[i] - highest);
    row[i] = share;
    total += share;
  }
  for (let i = 0; i < row.length; i += 1) row[i] /= total;
}

// The limit at temperature 0: the largest takes all, ties share.
function winners(row) {
  const highest = largest(row);
  let many = 0;
  for (let i = 0; i < row.length; i += 1) if (row[i] === highest) many += 1;
  for (let i = 0; i < row.length; i += 1) row[i] = row[i] === highest ? 1 / many : 0;
}

function largest(row) {
  let most = -Infinity;
  for (let i = 0; i < row.length; i += 1) if (row[i] > most) most = row[i];
  return most;
}

// All scores as they are after the step called `last`, as if nothing were hidden.
export function throughChain(scores, columns, formula, last) {
  const out = scores.slice();
  const steps = CHAIN.slice(0, CHAIN.findIndex(({ name }) => name === last) + 1);
  for (let at = 0; at < out.length; at += columns) {
    for (const { make } of steps) make(out.subarray(at, at + columns), formula);
  }
  return out;
}

// The keys that a query may see: a span, without those that are hidden for everybody.
// `mask` is {kind, window, prefix, real, bits}: `real` (by key) is 0 for padding; `bits`, a row for every query as
// message.js gives any matrix, says it all by itself.
export function span(mask, q, columns) {
  if (mask.bits) return [0, columns];
  let from = 0;
  let to = columns;
  if (mask.kind.includes("causal") || mask.kind === "prefix") to = Math.min(columns, q + 1);
  if (mask.kind.includes("window")) {
    from = Math.max(0, q - mask.window);
    to = Math.min(to, q + mask.window + 1);
  }
  if (mask.kind === "prefix") to = Math.max(to, Math.min(columns, mask.prefix));
  return [Math.min(from, to), to];
}

export function hides(mask, q, k) {
  return (mask.bits && !mask.bits[q][k]) || (mask.real && !mask.real[k]);
}

// Whether a mask hides one cell.
export function hidden(mask, q, k, columns) {
  const [from, to] = span(mask, q, columns);
  return k < from || k >= to || Boolean(hides(mask, q, k));
}

// The shares of every query. What a query does not see is 0, also where it sees nothing.
export function weights(scores, columns, formula) {
  const { mask, temperature, share } = formula;
  const cold = temperature === 0;
  const steps = cold ? [] : CHAIN; // a score that is larger by its last bit wins, which a division could round away
  const shareOut = cold ? winners : SHARES[share];
  const make = (row) => {
    for (const step of steps) step.make(row, formula);
    if (row.length) shareOut(row, columns);
  };
  const out = new scores.constructor(scores.length);
  const sideBySide = new scores.constructor(columns); // what is seen of a row that has gaps
  const sparse = Boolean(mask.bits || mask.real);
  for (let q = 0, at = 0; at < scores.length; q += 1, at += columns) {
    const [from, to] = span(mask, q, columns);
    if (!sparse) {
      const row = out.subarray(at + from, at + to);
      row.set(scores.subarray(at + from, at + to));
      make(row);
      continue;
    }
    let many = 0;
    for (let k = from; k < to; k += 1) if (!hides(mask, q, k)) sideBySide[many++] = scores[at + k];
    make(sideBySide.subarray(0, many));
    for (let k = from, i = 0; k < to; k += 1) if (!hides(mask, q, k)) out[at + k] = sideBySide[i++];
  }
  return out;
}

// X W, every product summed in double precision and rounded once; `rows` and `columns` are lists of rows.
export function product(rows, columns) {
  const width = columns[0].length;
  const sums = new Float64Array(width);
  return rows.map((row) => {
    sums.fill(0);
    for (let k = 0; k < row.length; k += 1) {
      const line = columns[k];
      for (let j = 0; j < width; j += 1) sums[j] += row[k] * line[j];
    }
    return new row.constructor(sums);
  });
}

// A V of one head, added into `out` from column `shift` on; `out` has `across` columns.
export function mixValues(weights, { flat, width, count }, out, across, shift) {
  const rows = weights.length / count;
  const sums = new Float64Array(width);
  for (let q = 0; q < rows; q += 1) {
    sums.fill(0);
    for (let k = 0; k < count; k += 1) {
      const weight = weights[q * count + k];
      if (weight === 0) continue;
      for (let i = 0, at = k * width; i < width; i += 1, at += 1) sums[i] += weight * flat[at];
    }
    for (let i = 0; i < width; i += 1) out[q * across + shift + i] += sums[i];
  }
  return out;
}
