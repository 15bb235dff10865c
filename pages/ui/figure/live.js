// One head's matrices in the page: made from what Python sent, cut to what is on the screen, and made
// again while a hand turns a knob. See kernel.js for the formula.

import { covered, dotScores, hidden, mixValues, pooled, product, softmax } from "./kernel.js";

export const MOST_CELLS = 256; // rows or columns of a map that are drawn; beyond, block maxima

// The rows of a matrix, one after the other; rows that repeat were sent once, and stay in `unique` at `index`.
function spread({ rows, index }) {
  const width = rows[0].length, unique = new rows[0].constructor(rows.length * width);
  rows.forEach((row, i) => unique.set(row, i * width));
  if (!index) return { flat: unique, unique, width, count: rows.length };
  const flat = new rows[0].constructor(index.length * width);
  index.forEach((row, i) => flat.set(rows[row], i * width));
  return { flat, unique, index, width, count: index.length };
}

// Q K^T of the different queries and keys only, then every key at its place: what repeats costs little.
function scoresByWord(query, key) {
  const once = dotScores(query.unique, key.unique, query.width), wide = key.unique.length / key.width;
  if (!key.index) return once;
  const rows = once.length / wide, scores = new once.constructor(rows * key.count);
  for (let q = 0, at = 0, from = 0; q < rows; q += 1, from += wide) {
    for (let k = 0; k < key.count; k += 1, at += 1) scores[at] = once[from + key.index[k]];
  }
  return scores;
}

// A row for every query, from a row for every different one.
function everyRow(matrix, index, width) {
  const out = new matrix.constructor(index.length * width);
  index.forEach((row, i) => out.set(matrix.subarray(row * width, (row + 1) * width), i * width));
  return out;
}

const same = (one, other) => one.length === other.length && one.every((number, i) => number === other[i]);

// A head's numbers as Python sent them, and its scores, made when they are asked for.
class Head {
  constructor(sent, inputs, before) {
    for (const [name, { from, w, ...matrix }] of Object.entries(sent)) {
      this[name] = spread(from ? { rows: product(inputs[from].rows, w), index: inputs[from].index } : matrix);
    }
    Object.assign(this, { rows: this.query.count, columns: this.key.count });
    this.made = before && same(before.query.flat, this.query.flat) && same(before.key.flat, this.key.flat) ? before.made : {};
  }

  get scores() { return (this.made.all ??= this.query.index ? everyRow(this.scoresByWord, this.query.index, this.columns) : this.scoresByWord); }
  get scoresByWord() { return (this.made.byWord ??= scoresByWord(this.query, this.key)); }
}

export class Exact {
  constructor(sent, before) {
    this.heads = Object.fromEntries(Object.entries(sent.heads).map(([head, one]) => [head, new Head(one, sent.inputs, before?.heads[head])]));
    this.sent = sent;
    const all = Object.values(this.heads), { index } = all[0].query;
    this.index = index && all.every(({ query }) => query.index && same(query.index, index)) ? index : null;
    this.mask = sent.mask;
    this.turn({ temperature: sent.temperature, head: sent.head });
    this.turned = false; // what Python sent is still what is so
  }

  // Takes a mask, a temperature or a head, and forgets what depended on the old one. Padding stays hidden under any
  // mask. Which cells a custom one hides only Python knows: until it answers, its own mask stands.
  turn({ mask, temperature = this.temperature, head = this.head }) {
    if (mask) this.mask = mask.kind === "custom" ? this.sent.mask : { window: 0, prefix: 0, ...mask, real: this.sent.mask.real };
    this.head = this.heads[head] ? head : this.head;
    Object.assign(this, { turned: true, temperature, made: {}, shares: new Map() });
  }

  get one() { return this.heads[this.head]; }
  get rows() { return this.one.rows; }
  get divisor() { return this.sent.divisor * this.temperature; }

  // Whether the page can make this step by itself.
  knows(name) { return this.sent.made.includes(name); }

  // The ends of a map's colours: those that Python gave, but the outputs of another temperature need others, and so do
  // weights whose colours are stretched to the largest of all heads.
  colors({ live, zmin, zmax, colorbar, meta }) {
    const stretched = meta?.colors === "stretched";
    if (!this.turned || !(stretched || live.endsWith("output"))) return { zmin, zmax, colorbar };
    const numbers = stretched ? Object.values(this.heads).map((head) => this.sharesOf(head)) : [this.step(live).flat];
    const largest = Math.max(...numbers.map((flat) => flat.reduce((most, number) => Math.max(most, Math.abs(number)), 0))) || 1;
    const low = stretched ? 0 : -largest, ends = [low, (low + largest) / 2, largest];
    return { zmin: low, zmax: largest, colorbar: { ...colorbar, tickvals: ends, ticktext: ends.map((end) => String(Number(end.toPrecision(3)))) } };
  }

  columnsOf(name) {
    if (name === "output") return this.sent.w_o[0].length;
    return name === "head_output" ? this.one.value.width : this.one.columns;
  }

  // A step of the head: `flat`, hidden scores as NaN, and where rows repeat, `index`: which of them each query has.
  step(name) {
    return (this.made[name] ??= this.make(name));
  }

  // Without a mask, queries of the same word have the same row in every step: each is made once.
  make(name) {
    if (name === "scores") return { flat: this.one.scoresByWord, index: this.one.query.index };
    return { flat: this.from(name), index: this.masks ? null : this.index };
  }

  scoresOf(head) { return this.masks || !this.index ? head.scores : head.scoresByWord; }

  // Of the shown head for its own map, and of all for the output.
  sharesOf(head) {
    if (!this.shares.has(head)) this.shares.set(head, softmax(this.scoresOf(head), head.columns, this.mask, this.divisor));
    return this.shares.get(head);
  }

  from(name) {
    const { mask, one, divisor } = this, scores = this.scoresOf(one), { columns } = one, rows = scores.length / columns;
    if (name === "weights") return this.sharesOf(one);
    if (name === "head_output") return mixValues(this.sharesOf(one), one.value, new scores.constructor(rows * one.value.width), one.value.width, 0);
    if (name === "output") return this.output(rows);
    const round = scores instanceof Float32Array ? Math.fround : Number, by = round(this.temperature === 0 ? this.sent.divisor : divisor);
    const scaled = scores.map((score) => score / by);
    return name === "scaled_scores" ? scaled : scaled.map((score, i) => (hidden(mask, Math.floor(i / columns), i % columns, columns) ? NaN : score));
  }

  // The heads side by side, times W_O.
  output(rows) {
    const heads = Object.values(this.heads), { width } = heads[0].value, across = heads.length * width;
    const beside = new Float64Array(rows * across);
    heads.forEach((head, i) => mixValues(this.sharesOf(head), head.value, beside, across, i * width));
    const wide = this.columnsOf("output"), out = new this.one.query.flat.constructor(rows * wide);
    for (let q = 0; q < rows; q += 1) {
      for (let i = 0; i < across; i += 1) {
        const part = beside[q * across + i], line = this.sent.w_o[i];
        for (let j = 0; j < wide; j += 1) out[q * wide + j] += part * line[j];
      }
    }
    return out;
  }

  get masks() { return this.mask.kind !== "none" || this.mask.real || this.mask.bits; }

  // What is drawn of a step between `rows` and `columns` [from, to): the cells, where they lie, how large they are.
  view(name, rows, columns) {
    const across = this.columnsOf(name), small = Math.max(this.rows, across) <= MOST_CELLS;
    const [top, bottom] = small ? [0, this.rows] : clipped(rows, this.rows), [left, right] = small ? [0, across] : clipped(columns, across);
    const block = Math.ceil(Math.max(bottom - top, right - left) / MOST_CELLS);
    const place = { x0: left + (block - 1) / 2, dx: block, y0: top + (block - 1) / 2, dy: block };
    const masked = this.masks && ["masked_scores", "weights"].includes(name);
    const ground = masked ? covered(this.mask, across, block, [top, bottom], [left, right]) : null;
    const { flat, index } = this.step(name);
    return { z: pooled(flat, across, block, [top, bottom], [left, right], index), ground, block, ...place };
  }

  // One number of a step; a hidden score is NaN.
  numberAt(name, q, k) {
    const { flat, index } = this.step(name);
    return flat[(index ? index[q] : q) * this.columnsOf(name) + k];
  }

  // The cell of largest size in the block that lies at x, y of a view.
  cellAt(name, { x0, y0, block }, x, y) {
    const corner = (at, first) => Math.round((at - first) / block) * block + first - (block - 1) / 2;
    const left = corner(x, x0), top = corner(y, y0), across = this.columnsOf(name), number = (q, k) => this.numberAt(name, q, k);
    let found = { x: left, y: top, z: number(top, left) };
    for (let q = top; q < Math.min(top + block, this.rows); q += 1) {
      for (let k = left; k < Math.min(left + block, across); k += 1) {
        const z = number(q, k);
        if (z === z && !(Math.abs(found.z) >= Math.abs(z))) found = { x: k, y: q, z };
      }
    }
    return found;
  }
}

// The cells [from, to) that lie between the two ends of an axis.
export function clipped([from, to], size) {
  const low = Math.max(0, Math.floor(Math.min(from, to) + 0.5)), high = Math.min(size, Math.ceil(Math.max(from, to) + 0.5));
  return low < high ? [low, high] : [0, size];
}
