// The formula as the page computes it while the user changes a knob: scores, steps between scores and weights, normalizers.
//
// Python is the reference: tests/pages/test_browser_kernel.py compares every function with torch. Matrices are flat, row by row;
// a row of scores is a query, a column a key. Variants are entries of tables: score functions in SCORES, steps between scores
// and weights in CHAIN, normalizers in NORMALIZERS.
//
// `formula` is {score, divisor, temperature, cap, normalizer, mask}, see `LiveLayer` in live_layer.js.

// Score functions: every query with every key, each a row of `width` numbers.
export const SCORES = {
  // Q K^T: each dot product is summed in double precision and rounded once, as `scores.times` does.
  dot(query, key, width) {
    const rows = query.length / width;
    const columns = key.length / width;
    const scores = new query.constructor(rows * columns);
    for (let q = 0; q < rows; q += 1) {
      const queryStart = q * width;
      for (let k = 0; k < columns; k += 1) {
        let sum = 0;
        for (let i = 0, j = k * width; i < width; i += 1, j += 1) sum += query[queryStart + i] * key[j];
        scores[q * columns + k] = sum;
      }
    }
    return scores;
  },

  // The dot product of rows scaled to length 1; a row of zeros stays zero.
  cosine(query, key, width) {
    const normalizeRows = (matrix) => {
      const out = Float64Array.from(matrix);
      for (let start = 0; start < out.length; start += width) {
        const row = out.subarray(start, start + width);
        const length = Math.sqrt(row.reduce((sum, number) => sum + number * number, 0));
        if (length) row.forEach((number, i) => { row[i] = number / length; });
      }
      return out;
    };
    return new query.constructor(SCORES.dot(normalizeRows(query), normalizeRows(key), width));
  },

  // The weighted sum of tanh(query + key) over columns.
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

// The steps from scores to weights, in order. Each changes part or all of the `row` of a query in place; a row of
// single precision rounds what is written into it, as torch rounds every step.
export const CHAIN = [
  {
    name: "scaled_scores",
    // At temperature 0 this map divides by the divisor alone; the weights are then not computed from it.
    apply(row, { divisor, temperature }) {
      const round = row instanceof Float32Array ? Math.fround : Number;
      const scale = round(temperature === 0 ? divisor : divisor * temperature);
      for (let i = 0; i < row.length; i += 1) row[i] /= scale;
    },
  },
  {
    name: "capped_scores",
    apply(row, { cap }) {
      if (cap) for (let i = 0; i < row.length; i += 1) row[i] = cap * Math.tanh(row[i] / cap);
    },
  },
];

// Normalizers: each replaces, in place, the visible scores of a query by its weights; `keys` is the number of
// keys, visible or not.
export const NORMALIZERS = {
  // e^score, divided by the sum. The highest score is subtracted first to avoid overflow.
  softmax(row) {
    const highest = largest(row);
    if (highest === -Infinity) row.fill(0);
    else normalizeExponentials(row, highest, 0);
  },

  // The softmax with 1 added to the sum: the weights sum to less than 1.
  softmax1(row) {
    // The 1 is e^0, and takes part in the maximum.
    const highest = Math.max(0, largest(row));
    normalizeExponentials(row, highest, Math.exp(-highest));
  },

  // The sigmoid of each score minus the logarithm of the number of keys.
  sigmoid(row, keys) {
    for (let i = 0; i < row.length; i += 1) row[i] = 1 / (1 + keys * Math.exp(-row[i]));
  },

  // Each score minus the threshold for which the positive differences sum to 1.
  sparsemax(row) {
    // A typed array sorts by number.
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

// Replaces every number by e^(number − highest), divided by the sum of these and the initial `total`.
function normalizeExponentials(row, highest, total) {
  for (let i = 0; i < row.length; i += 1) {
    const power = Math.exp(row[i] - highest);
    row[i] = power;
    total += power;
  }
  for (let i = 0; i < row.length; i += 1) row[i] /= total;
}

// The limit at temperature 0: the largest scores share the weight equally.
function hardmax(row) {
  const highest = largest(row);
  let ties = 0;
  for (let i = 0; i < row.length; i += 1) if (row[i] === highest) ties += 1;
  for (let i = 0; i < row.length; i += 1) row[i] = row[i] === highest ? 1 / ties : 0;
}

function largest(row) {
  let highest = -Infinity;
  for (let i = 0; i < row.length; i += 1) if (row[i] > highest) highest = row[i];
  return highest;
}

// All scores after the step called `last`, ignoring the mask.
export function applyChain(scores, columns, formula, last) {
  const out = scores.slice();
  const steps = CHAIN.slice(0, CHAIN.findIndex(({ name }) => name === last) + 1);
  for (let start = 0; start < out.length; start += columns) {
    for (const { apply } of steps) apply(out.subarray(start, start + columns), formula);
  }
  return out;
}

// The span of keys that a query may see, except those that `hidesKey` hides.
// `mask` is {kind, window, window_right, prefix, query_offset, real, bits}: `real` (by key) is 0 for padding; `bits`, a matrix
// with a row for every query, is the complete mask. Query q stands at position q + query_offset.
export function visibleSpan(mask, q, columns) {
  if (mask.bits) return [0, columns];
  const position = q + (mask.query_offset ?? 0);
  const upTo = (last) => Math.max(0, Math.min(columns, last + 1));
  let from = 0;
  let to = columns;
  if (mask.kind.includes("causal") || mask.kind === "prefix") to = upTo(position);
  if (mask.kind.includes("window")) {
    from = Math.max(0, position - mask.window);
    to = Math.min(to, upTo(position + ((mask.kind === "window" ? mask.window_right : null) ?? mask.window)));
  }
  if (mask.kind === "prefix") to = Math.max(to, Math.min(columns, mask.prefix));
  return [Math.min(from, to), to];
}

export function hidesKey(mask, q, k) {
  return (mask.bits && !mask.bits[q][k]) || (mask.real && !mask.real[k]);
}

// Whether a mask hides one cell.
export function isHidden(mask, q, k, columns) {
  const [from, to] = visibleSpan(mask, q, columns);
  return k < from || k >= to || Boolean(hidesKey(mask, q, k));
}

// The weights of every query. Hidden keys get 0, also where a query sees no key.
export function weights(scores, columns, formula) {
  const { mask, temperature, normalizer } = formula;
  const atZero = temperature === 0;
  const steps = atZero ? [] : CHAIN; // scores are compared unscaled, because a division could round a difference in the last bit away
  const normalize = atZero ? hardmax : NORMALIZERS[normalizer];
  const weigh = (row) => {
    for (const step of steps) step.apply(row, formula);
    if (row.length) normalize(row, columns);
  };
  const out = new scores.constructor(scores.length);
  const visible = new scores.constructor(columns); // the visible scores of a row with gaps
  const hasGaps = Boolean(mask.bits || mask.real);
  for (let q = 0, start = 0; start < scores.length; q += 1, start += columns) {
    const [from, to] = visibleSpan(mask, q, columns);
    if (!hasGaps) {
      const row = out.subarray(start + from, start + to);
      row.set(scores.subarray(start + from, start + to));
      weigh(row);
      continue;
    }
    let count = 0;
    for (let k = from; k < to; k += 1) if (!hidesKey(mask, q, k)) visible[count++] = scores[start + k];
    weigh(visible.subarray(0, count));
    for (let k = from, i = 0; k < to; k += 1) if (!hidesKey(mask, q, k)) out[start + k] = visible[i++];
  }
  return out;
}

// The matrix product, summed in double precision and rounded once; both factors are lists of rows.
export function matmul(left, right) {
  const width = right[0].length;
  const sums = new Float64Array(width);
  return left.map((row) => {
    sums.fill(0);
    for (let k = 0; k < row.length; k += 1) {
      const factor = right[k];
      for (let j = 0; j < width; j += 1) sums[j] += row[k] * factor[j];
    }
    return new row.constructor(sums);
  });
}

// Adds A V of one head into `out` from column `shift` on; `out` has `columns` columns.
export function addWeightedValues(weights, { flat, width, count }, out, columns, shift) {
  const rows = weights.length / count;
  const sums = new Float64Array(width);
  for (let q = 0; q < rows; q += 1) {
    sums.fill(0);
    for (let k = 0; k < count; k += 1) {
      const weight = weights[q * count + k];
      if (weight === 0) continue;
      for (let i = 0, j = k * width; i < width; i += 1, j += 1) sums[i] += weight * flat[j];
    }
    for (let i = 0; i < width; i += 1) out[q * columns + shift + i] += sums[i];
  }
  return out;
}
