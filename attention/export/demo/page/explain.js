// The arithmetic of a cell in one line, for the steps that follow the hand: what attention/numbers/kinds says of them.
//
// Every function takes a `cell` {step, head, row, column} and a `layer`:
//   at(step, head, row, column)  a number; −∞ where the mask hides it
//   columns(step)                how many there are
//   factors                      by step: the two that are multiplied
//   d_k, divisor, temperature, share, heads, before (the step before masked_scores)
// and gives {short, sign, from: [[step, head, row, column], …]}. tests/test_demo.py compares every line with Python's.

import { brief, factor, number, power, product, quotient, shown, sum, sums } from "./printed.js";

const close = (one, other) => Math.abs(one - other) <= 1e-9 * Math.max(Math.abs(one), Math.abs(other));
const numberOf = (layer, { step, head, row, column }) => layer.at(step, head, row, column);
const rowOf = (layer, step, { head, row }) => Array.from({ length: layer.columns(step) }, (_, i) => layer.at(step, head, row, i));

// A score, divided by √d_k and by the temperature.
function scaledScores(layer, cell) {
  const { head, row, column } = cell;
  const { divisor, temperature, d_k: width } = layer;
  const value = numberOf(layer, cell);
  const score = layer.at("scores", head, row, column);
  const from = [["scores", head, row, column]];
  const root = { [divisor]: number(divisor).text };
  if (width > 1 && close(divisor, Math.sqrt(width))) root[divisor] = `√${width}`;
  const texts = divisor === 1 ? [] : [root[divisor]];
  if (temperature !== 1) texts.push(number(temperature, 9).text);
  if (!texts.length) {
    const reason = width === 1 ? "d_k is 1, and so is √d_k" : "scaling is off";
    return { short: `${shown(value)}: the score itself, ${reason}`, sign: "=", from };
  }
  const rooted = texts[0].includes("√");
  const way = (digits) => {
    const [above, by] = [number(score, digits), number(divisor, digits)];
    const below = (rooted || divisor === 1 ? texts : [by.text, ...texts.slice(1)]).join(" · ");
    const exact = rooted ? divisor : by.value;
    return {
      text: `${above.text} / ${texts.length > 1 ? `(${below})` : below}`,
      value: above.value / (exact * number(temperature, 9).value),
    };
  };
  return { ...brief([way], value), from };
}

// A score that stays as it is, or is hidden.
function maskedScores(layer, cell) {
  const value = numberOf(layer, cell);
  const why = "stays as it is, the key is visible";
  const short = value === -Infinity ? "−∞: hidden by the mask" : `${shown(value)}: ${why}`;
  return { short, sign: "=", from: [[layer.before, cell.head, cell.row, cell.column]] };
}

// What this key gets of what the query shares out.
function weights(layer, cell) {
  const scores = rowOf(layer, "masked_scores", cell);
  const from = [["masked_scores", cell.head, cell.row, cell.column]];
  if (scores.every((score) => score === -Infinity)) return { short: "0: the mask hides every key", sign: "=", from };
  if (scores[cell.column] === -Infinity) return { short: "0: hidden by the mask", sign: "=", from };
  return { ...SHARES[layer.share](scores, cell.column, numberOf(layer, cell)), from };
}

const SHARES = {
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
    if (score <= threshold) return { short: `0: not above the threshold τ = ${shown(threshold)}`, sign: "=" };
    const way = (digits) => {
      const [one, less] = [number(score, digits), factor(threshold, digits)];
      return { text: `${one.text} − ${less.text}`, value: one.value - less.value };
    };
    return brief([way], value);
  },
};

// A sum of products, and the cells of the largest of them.
function summed(pairs, value, cellsOf) {
  const values = pairs.map(([one, other]) => one * other);
  const size = Math.max(...values.map(Math.abs));
  return {
    ...brief(sums(values, (i, digits) => product(...pairs[i], digits)), value),
    from: cellsOf(values.findIndex((one) => Math.abs(one) === size)),
  };
}

// A row times a column; of the scores, a row times a row.
function multiplied(layer, cell) {
  const { step, head, row, column } = cell;
  const [left, right] = layer.factors[step];
  const placeOf = (i) => (step === "scores" ? [right, head, column, i] : [right, head, i, column]);
  const pairs = rowOf(layer, left, cell).map((number, i) => [number, layer.at(...placeOf(i))]);
  return summed(pairs, numberOf(layer, cell), (i) => [[left, head, row, i], placeOf(i)]);
}

// The heads' outputs side by side, times a column of W_O.
function output(layer, cell) {
  const { row, column } = cell;
  const wide = layer.columns("head_output");
  const cells = layer.heads.flatMap((head) => Array.from({ length: wide }, (_, i) => ["head_output", head, row, i]));
  const pairs = cells.map((one, i) => [layer.at(...one), layer.at("w_o", 0, i, column)]);
  return summed(pairs, numberOf(layer, cell), (i) => [cells[i]]);
}

const STEPS = { scaled_scores: scaledScores, masked_scores: maskedScores, weights, output };

export function explain(layer, cell) {
  return { shown: shown(numberOf(layer, cell)), ...(STEPS[cell.step] ?? multiplied)(layer, cell) };
}
