// Computes each step after the scores, for the current head of a `LiveLayer` (live_layer.js).

import { CHAIN, addWeightedValues, applyChain, isHidden } from "./kernel.js";

// By name: a function that returns a flat matrix, row by row; with repeated rows and no mask, of the distinct rows.
export const STEPS = {
  ...Object.fromEntries(CHAIN.map(({ name }) => [name, (layer) => chainStep(layer, name)])),
  masked_scores: maskedScores,
  weights: (layer) => layer.weightsOf(layer.currentHead),
  head_output: headOutput,
  output,
};

function chainStep(layer, name) {
  return applyChain(layer.scoresOf(layer.currentHead), layer.currentHead.columns, layer.formula, name);
}

function maskedScores(layer) {
  const { columns } = layer.currentHead;
  const scores = chainStep(layer, CHAIN.at(-1).name);
  const hides = (i) => isHidden(layer.formula.mask, Math.floor(i / columns), i % columns, columns);
  return scores.map((score, i) => (hides(i) ? NaN : score));
}

function headOutput(layer) {
  const { currentHead: head } = layer;
  const weights = layer.weightsOf(head);
  const out = new weights.constructor((weights.length / head.columns) * head.value.width);
  return addWeightedValues(weights, head.value, out, head.value.width, 0);
}

// The outputs of all heads side by side, times W_O.
function output(layer) {
  const heads = Object.values(layer.heads);
  const { width } = heads[0].value;
  const concatWidth = heads.length * width;
  const rows = layer.scoresOf(layer.currentHead).length / layer.currentHead.columns;
  const concat = new Float64Array(rows * concatWidth);
  heads.forEach((head, i) => addWeightedValues(layer.weightsOf(head), head.value, concat, concatWidth, i * width));
  const columns = layer.columnsOf("output");
  const out = new layer.currentHead.query.flat.constructor(rows * columns);
  for (let q = 0; q < rows; q += 1) {
    for (let i = 0; i < concatWidth; i += 1) {
      const factor = concat[q * concatWidth + i];
      const projection = layer.sent.w_o[i];
      for (let j = 0; j < columns; j += 1) out[q * columns + j] += factor * projection[j];
    }
  }
  return out;
}
