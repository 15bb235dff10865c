// Computes matrices in the page from what Python sent, pools them for the screen, and recomputes them while the user
// changes a knob. kernel.js has the formula, live_head.js its inputs, live_steps.js the steps.

import { MOST_CELLS, clipRange, hiddenBlocks, poolBlocks } from "./pooling.js";
import { Head, equalArrays } from "./live_head.js";
import { weights } from "./kernel.js";
import { STEPS } from "./live_steps.js";

const FEW_KEYS = 24; // a map of so few has its numbers in its cells
const SERVER_MASKS = ["custom", "own"]; // masks whose cells only Python knows; "own" is the mask of the source

// The colours up to `high`, from 0 or, for signed numbers, from its negative.
export function colorRange(high, isSigned, { colorbar }) {
  const low = isSigned ? -high : 0;
  const tickvals = [low, (low + high) / 2, high];
  const ticktext = tickvals.map((value) => String(Number(value.toPrecision(3))));
  return { zmin: low, zmax: high, colorbar: { ...colorbar, tickvals, ticktext } };
}

// The largest weight of the queries that see at least an eighth of many keys, as `StepStats.brightest` in Python; 0 if there is none.
function ofManyKeys(flat, columns) {
  let brightest = 0;
  for (let start = 0; columns > FEW_KEYS && start < flat.length; start += columns) {
    const row = flat.subarray(start, start + columns);
    const seen = row.reduce((count, weight) => count + (weight > 0), 0);
    if (8 * seen >= columns) brightest = row.reduce((largest, weight) => Math.max(largest, weight), brightest);
  }
  return brightest;
}

/** A layer whose steps the page computes, for the current knobs. */
export class LiveLayer {
  /** The part of the message that it is computed from. @type {import("./message.js").Live} */
  sent;
  /** All heads that were sent, by number. @type {Object<string, Head>} */
  heads;
  /** The number of the current head. @type {number} */
  head;
  /** The formula after queries and keys, see kernel.js. */
  formula;
  /** The index of each query among the distinct queries if it is equal in all heads; null if no query repeats. */
  index;
  /** Whether a knob has changed since the message; until then, Python's numbers are valid. */
  changed = false;
  /** Steps of the current head and weights of every head, as far as computed since the last change. */
  computed = {};
  weightsByHead = new Map();
  /** The same layer with another current head, see `withHead`. */
  otherHeads = {};

  constructor(sent, previous) {
    this.sent = sent;
    const { score, normalizer, divisor, cap, temperature, mask } = sent;
    this.formula = { score, normalizer, divisor, cap, temperature, mask };
    this.heads = Object.fromEntries(Object.entries(sent.heads).map(([number, head]) => {
      return [number, new Head(score, head, sent.inputs, previous?.heads[number])];
    }));
    this.head = sent.head;
    const heads = Object.values(this.heads);
    const { index } = heads[0].query;
    this.index = index && heads.every(({ query }) => query.index && equalArrays(query.index, index)) ? index : null;
  }

  // Applies changed knobs and drops what was computed from the old ones. Padding stays hidden under any mask. Only Python
  // knows the cells of a custom mask or of the source's own: until it answers, its last mask is used.
  update({ mask, head, ...knobs }) {
    Object.assign(this.formula, knobs);
    const sentMask = this.sent.mask;
    if (mask) {
      const rule = { ...sentMask, bits: null, window: 0, prefix: 0, ...mask, real: sentMask.real };
      this.formula.mask = SERVER_MASKS.includes(mask.kind) ? sentMask : rule;
    }
    if (this.heads[head]) this.head = head;
    this.changed = true;
    this.computed = {};
    this.weightsByHead = new Map();
    this.otherHeads = {};
  }

  get currentHead() { return this.heads[this.head]; }

  // The same layer with another head, for a map that always shows that head.
  withHead(head) {
    if (!(head in this.heads) || head === this.head) return this;
    return (this.otherHeads[head] ??= Object.assign(Object.create(this), { head, computed: {} }));
  }

  get rows() { return this.currentHead.rows; }

  get hasMask() {
    const { kind, real, bits } = this.formula.mask;
    return kind !== "none" || real || bits;
  }

  // Whether the page can compute this step.
  canCompute(name) { return this.sent.computable.includes(name); }

  // The colour range of a map: as Python sent it, except for outputs at another temperature, and for weights
  // whose colours are stretched to the largest.
  colors({ live, zmin, zmax, colorbar, meta }) {
    const stretched = meta?.colors === "stretched";
    if (!this.changed || meta?.colors === "cut" || !(stretched || live.endsWith("output"))) return { zmin, zmax, colorbar };
    const { flat } = this.step(live);
    const brightest = stretched && this.hasMask ? ofManyKeys(flat, this.currentHead.columns) : 0;
    const magnitude = () => flat.reduce((largest, number) => Math.max(largest, Math.abs(number)), 0);
    return colorRange(brightest || magnitude() || 1, !stretched, { colorbar });
  }

  columnsOf(name) {
    if (name === "output") return this.sent.w_o[0].length;
    return name === "head_output" ? this.currentHead.value.width : this.currentHead.columns;
  }

  // A step of the current head: `flat`, with hidden scores as NaN; where rows repeat, `index` has the row of each query.
  step(name) {
    return (this.computed[name] ??= this.compute(name));
  }

  // Without a mask, queries of the same word have equal rows in every step: each is computed once.
  compute(name) {
    if (name === "scores") return { flat: this.currentHead.distinctScores, index: this.currentHead.query.index };
    return { flat: STEPS[name](this), index: this.hasMask ? null : this.index };
  }

  scoresOf(head) { return this.hasMask || !this.index ? head.scores : head.distinctScores; }

  // The weights of a head: the map needs those of the current head, the output those of all heads.
  weightsOf(head) {
    if (!this.weightsByHead.has(head)) this.weightsByHead.set(head, weights(this.scoresOf(head), head.columns, this.formula));
    return this.weightsByHead.get(head);
  }

  // The visible part of a step within `rows` and `columns` [from, to): its cells, their position, their block size.
  view(name, rows, columns) {
    const width = this.columnsOf(name);
    const fits = Math.max(this.rows, width) <= MOST_CELLS;
    const [top, bottom] = fits ? [0, this.rows] : clipRange(rows, this.rows);
    const [left, right] = fits ? [0, width] : clipRange(columns, width);
    const block = Math.ceil(Math.max(bottom - top, right - left) / MOST_CELLS);
    const masked = this.hasMask && ["masked_scores", "weights"].includes(name);
    const { flat, index } = this.step(name);
    return {
      z: poolBlocks(flat, width, block, [top, bottom], [left, right], index),
      hidden: masked ? hiddenBlocks(this.formula.mask, width, block, [top, bottom], [left, right]) : null,
      block,
      place: { x0: left + (block - 1) / 2, dx: block, y0: top + (block - 1) / 2, dy: block },
    };
  }

  // One number of a step; a hidden score is NaN.
  numberAt(name, q, k) {
    const { flat, index } = this.step(name);
    return flat[(index ? index[q] : q) * this.columnsOf(name) + k];
  }

  // The cell of largest magnitude in the block at x, y of a view.
  cellAt(name, { place: { x0, y0 }, block }, x, y) {
    const corner = (position, first) => Math.round((position - first) / block) * block + first - (block - 1) / 2;
    const left = corner(x, x0);
    const top = corner(y, y0);
    const width = this.columnsOf(name);
    let largest = { x: left, y: top, z: this.numberAt(name, top, left) };
    for (let q = top; q < Math.min(top + block, this.rows); q += 1) {
      for (let k = left; k < Math.min(left + block, width); k += 1) {
        const z = this.numberAt(name, q, k);
        if (!Number.isNaN(z) && !(Math.abs(largest.z) >= Math.abs(z))) largest = { x: k, y: q, z };
      }
    }
    return largest;
  }
}
