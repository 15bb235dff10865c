// The arithmetic of a cell in one line, for the steps that the page computes, as attention/explanation/ writes it.
//
// Every function takes a `layer` and a `cell` {step, head, row, column}. The layer has:
//   at(step, head, row, column)  a number; −∞ for a hidden cell
//   columns(step)                the number of columns
//   factors                      by step: the two factors
//   d_k, divisor, temperature, normalizer, heads, before (the step before masked_scores)
// It returns {short, sign, from: [[step, head, row, column], …]}. tests/demo/test_demo.py compares every line with Python's.

import { brief, factor, formatNumber, number, power, product, quotient, sum, sumWays } from "./number_text.js";

const isClose = (a, b) => Math.abs(a - b) <= 1e-9 * Math.max(Math.abs(a), Math.abs(b));
const numberOf = (layer, { step, head, row, column }) => layer.at(step, head, row, column);
const rowOf = (layer, step, { head, row }) => Array.from({ length: layer.columns(step) }, (_, i) => layer.at(step, head, row, i));

// A score divided by √d_k and by the temperature.
function scaledScores(layer, cell) {
  const { head, row, column } = cell;
  const { divisor, temperature, d_k: width } = layer;
  const value = numberOf(layer, cell);
  const score = layer.at("scores", head, row, column);
  const from = [["scores", head, row, column]];
  let divisorText = number(divisor).text;
  if (width > 1 && isClose(divisor, Math.sqrt(width))) divisorText = `√${width}`;
  const texts = divisor === 1 ? [] : [divisorText];
  if (temperature !== 1) texts.push(number(temperature, 9).text);
  if (!texts.length) {
    const reason = width === 1 ? "d_k is 1, and so is √d_k" : "scaling is off";
    return { short: `${formatNumber(value)}: the score itself, ${reason}`, sign: "=", from };
  }
  const usesRoot = texts[0].includes("√");
  const print = (digits) => {
    const [numerator, divisorPrinted] = [number(score, digits), number(divisor, digits)];
    const denominator = (usesRoot || divisor === 1 ? texts : [divisorPrinted.text, ...texts.slice(1)]).join(" · ");
    const divisorValue = usesRoot ? divisor : divisorPrinted.value;
    return {
      text: `${numerator.text} / ${texts.length > 1 ? `(${denominator})` : denominator}`,
      value: numerator.value / (divisorValue * number(temperature, 9).value),
    };
  };
  return { ...brief([print], value), from };
}

// A score that is unchanged or hidden.
function maskedScores(layer, cell) {
  const value = numberOf(layer, cell);
  const reason = "stays as it is, the key is visible";
  const short = value === -Infinity ? "−∞: hidden by the mask" : `${formatNumber(value)}: ${reason}`;
  return { short, sign: "=", from: [[layer.before, cell.head, cell.row, cell.column]] };
}

// The weight of one key.
function weights(layer, cell) {
  const scores = rowOf(layer, "masked_scores", cell);
  const from = [["masked_scores", cell.head, cell.row, cell.column]];
  if (scores.every((score) => score === -Infinity)) return { short: "0: the mask hides every key", sign: "=", from };
  if (scores[cell.column] === -Infinity) return { short: "0: hidden by the mask", sign: "=", from };
  return { ...NORMALIZERS[layer.normalizer](scores, cell.column, numberOf(layer, cell)), from };
}

const NORMALIZERS = {
  softmax(scores, column, value) {
    const highest = Math.max(...scores);
    const total = sum(scores.map((score) => Math.exp(score - highest)));
    return brief([(digits) => quotient(power(scores[column], highest, digits), number(total, digits))], value);
  },

  sparsemax(scores, column, value) {
    const ordered = scores.filter((score) => score > -Infinity).sort((a, b) => b - a);
    const count = ordered.filter((score, i) => 1 + (i + 1) * score > sum(ordered.slice(0, i + 1))).length;
    const threshold = (sum(ordered.slice(0, count)) - 1) / count;
    const score = scores[column];
    if (score <= threshold) return { short: `0: not above the threshold τ = ${formatNumber(threshold)}`, sign: "=" };
    const print = (digits) => {
      const [minuend, subtrahend] = [number(score, digits), factor(threshold, digits)];
      return { text: `${minuend.text} − ${subtrahend.text}`, value: minuend.value - subtrahend.value };
    };
    return brief([print], value);
  },
};

// A sum of products, and the cells of the largest product.
function sumOfProducts(pairs, value, cellsOf) {
  const values = pairs.map(([left, right]) => left * right);
  const largest = Math.max(...values.map(Math.abs));
  return {
    ...brief(sumWays(values, (i, digits) => product(...pairs[i], digits)), value),
    from: cellsOf(values.findIndex((term) => Math.abs(term) === largest)),
  };
}

// A row times a column; for the scores, a row times a row.
function matrixProduct(layer, cell) {
  const { step, head, row, column } = cell;
  const [left, right] = layer.factors[step];
  const rightCell = (i) => (step === "scores" ? [right, head, column, i] : [right, head, i, column]);
  const pairs = rowOf(layer, left, cell).map((number, i) => [number, layer.at(...rightCell(i))]);
  return sumOfProducts(pairs, numberOf(layer, cell), (i) => [[left, head, row, i], rightCell(i)]);
}

// The outputs of all heads side by side, times a column of W_O.
function output(layer, cell) {
  const { row, column } = cell;
  const width = layer.columns("head_output");
  const cells = layer.heads.flatMap((head) => Array.from({ length: width }, (_, i) => ["head_output", head, row, i]));
  const pairs = cells.map((position, i) => [layer.at(...position), layer.at("w_o", 0, i, column)]);
  return sumOfProducts(pairs, numberOf(layer, cell), (i) => [cells[i]]);
}

const STEPS = { scaled_scores: scaledScores, masked_scores: maskedScores, weights, output };

export function explain(layer, cell) {
  return { shown: formatNumber(numberOf(layer, cell)), ...(STEPS[cell.step] ?? matrixProduct)(layer, cell) };
}
