// Queries, keys and values of one head in the page, and its scores: rows that repeat were sent once, and are made once.

import { SCORES, product } from "./kernel.js";

export const same = (one, other) => one.length === other.length && one.every((number, i) => number === other[i]);

// The rows of a matrix, one after the other; rows that repeat were sent once, and stay in `unique` at `index`.
function spread({ rows, index }) {
  const width = rows[0].length;
  const unique = new rows[0].constructor(rows.length * width);
  rows.forEach((row, i) => unique.set(row, i * width));
  if (!index) return { flat: unique, unique, width, count: rows.length };
  return { flat: everyRow(unique, index, width), unique, index, width, count: index.length };
}

// A row for every query, from a row for every different one.
function everyRow(matrix, index, width) {
  const out = new matrix.constructor(index.length * width);
  index.forEach((row, i) => out.set(matrix.subarray(row * width, (row + 1) * width), i * width));
  return out;
}

// The scores of the different queries and keys only, then every key at its place: what repeats costs little.
function scoresByWord({ kind, query, key, w_s: weights }) {
  const once = SCORES[kind](query.unique, key.unique, query.width, weights?.flat);
  if (!key.index) return once;
  const wide = key.unique.length / key.width;
  const rows = once.length / wide;
  const scores = new once.constructor(rows * key.count);
  for (let q = 0, at = 0, from = 0; q < rows; q += 1, from += wide) {
    for (let k = 0; k < key.count; k += 1, at += 1) scores[at] = once[from + key.index[k]];
  }
  return scores;
}

// A head's numbers as Python sent them, and its scores, made when they are asked for.
export class Head {
  // `before` is the same head of the message before, which may have its scores already.
  constructor(kind, sent, inputs, before) {
    for (const [name, { from, w, ...matrix }] of Object.entries(sent)) {
      this[name] = spread(from ? { rows: product(inputs[from].rows, w), index: inputs[from].index } : matrix);
    }
    this.kind = kind;
    this.rows = this.query.count;
    this.columns = this.key.count;
    const known = before?.kind === kind && ["query", "key", "w_s"].every((name) => !this[name] || same(before[name].flat, this[name].flat));
    this.made = known ? before.made : {};
  }

  get scoresByWord() {
    return (this.made.byWord ??= scoresByWord(this));
  }

  get scores() {
    const { index } = this.query;
    return (this.made.all ??= index ? everyRow(this.scoresByWord, index, this.columns) : this.scoresByWord);
  }
}
