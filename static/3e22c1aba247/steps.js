// How the page makes each step after the scores, of the head that is shown, from an `Exact` (live.js).

import { CHAIN, hidden, mixValues, throughChain } from "./kernel.js";

// By its name: a matrix, flat, row by row; where rows repeat and nothing is masked, of the different ones.
export const STEPS = {
  ...Object.fromEntries(CHAIN.map(({ name }) => [name, (exact) => chained(exact, name)])),
  masked_scores: masked,
  weights: (exact) => exact.sharesOf(exact.one),
  head_output: headOutput,
  output,
};

function chained(exact, name) {
  return throughChain(exact.scoresOf(exact.one), exact.one.columns, exact.formula, name);
}

function masked(exact) {
  const { columns } = exact.one;
  const last = chained(exact, CHAIN.at(-1).name);
  const hides = (i) => hidden(exact.formula.mask, Math.floor(i / columns), i % columns, columns);
  return last.map((score, i) => (hides(i) ? NaN : score));
}

function headOutput(exact) {
  const { one } = exact;
  const shares = exact.sharesOf(one);
  const out = new shares.constructor((shares.length / one.columns) * one.value.width);
  return mixValues(shares, one.value, out, one.value.width, 0);
}

// The heads side by side, times W_O.
function output(exact) {
  const heads = Object.values(exact.heads);
  const { width } = heads[0].value;
  const across = heads.length * width;
  const rows = exact.scoresOf(exact.one).length / exact.one.columns;
  const beside = new Float64Array(rows * across);
  heads.forEach((head, i) => mixValues(exact.sharesOf(head), head.value, beside, across, i * width));
  const wide = exact.columnsOf("output");
  const out = new exact.one.query.flat.constructor(rows * wide);
  for (let q = 0; q < rows; q += 1) {
    for (let i = 0; i < across; i += 1) {
      const part = beside[q * across + i];
      const line = exact.sent.w_o[i];
      for (let j = 0; j < wide; j += 1) out[q * wide + j] += part * line[j];
    }
  }
  return out;
}
