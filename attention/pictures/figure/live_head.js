// Queries, keys, values and scores of one head in the page. Repeated rows are sent once and computed once.

import { SCORES, matmul } from "./kernel.js";

export const equalArrays = (a, b) => a.length === b.length && a.every((number, i) => number === b[i]);

// A matrix as one flat array; the distinct rows of repeated ones stay in `unique`, with their `index`.
function flatten({ rows, index }) {
  const width = rows[0].length;
  const unique = new rows[0].constructor(rows.length * width);
  rows.forEach((row, i) => unique.set(row, i * width));
  if (!index) return { flat: unique, unique, width, count: rows.length };
  return { flat: gatherRows(unique, index, width), unique, index, width, count: index.length };
}

// The rows of a matrix of distinct rows, in the order of `index`.
function gatherRows(matrix, index, width) {
  const out = new matrix.constructor(index.length * width);
  index.forEach((row, i) => out.set(matrix.subarray(row * width, (row + 1) * width), i * width));
  return out;
}

// The scores of the distinct queries: computed for distinct keys, then expanded to every key.
function scoresOfDistinctQueries({ score, query, key, w_s: weights }) {
  const distinct = SCORES[score](query.unique, key.unique, query.width, weights?.flat);
  if (!key.index) return distinct;
  const distinctKeys = key.unique.length / key.width;
  const rows = distinct.length / distinctKeys;
  const scores = new distinct.constructor(rows * key.count);
  for (let q = 0, i = 0, start = 0; q < rows; q += 1, start += distinctKeys) {
    for (let k = 0; k < key.count; k += 1, i += 1) scores[i] = distinct[start + key.index[k]];
  }
  return scores;
}

// The matrices of a head as Python sent them, and its scores, computed on first access.
export class Head {
  // `previous` is the same head of the previous message; its scores are reused if its matrices are equal.
  constructor(score, sent, inputs, previous) {
    for (const [name, { from: input, w, ...matrix }] of Object.entries(sent)) {
      this[name] = flatten(input ? { rows: matmul(inputs[input].rows, w), index: inputs[input].index } : matrix);
    }
    this.score = score;
    this.rows = this.query.count;
    this.columns = this.key.count;
    const reusable = previous?.score === score
      && ["query", "key", "w_s"].every((name) => !this[name] || equalArrays(previous[name].flat, this[name].flat));
    this.computed = reusable ? previous.computed : {};
  }

  get distinctScores() {
    return (this.computed.distinct ??= scoresOfDistinctQueries(this));
  }

  get scores() {
    const { index } = this.query;
    return (this.computed.all ??= index ? gatherRows(this.distinctScores, index, this.columns) : this.distinctScores);
  }
}
