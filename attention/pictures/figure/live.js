// Matrices in the page: made from what Python sent, cut to what is on the screen, and made again while a hand turns a
// knob. See kernel.js for the formula, heads.js for what it is made of, steps.js for how.

import { MOST_CELLS, clipped, covered, pooled } from "./blocks.js";
import { Head, same } from "./heads.js";
import { weights } from "./kernel.js";
import { STEPS } from "./steps.js";

const ASKED = ["custom", "own"]; // the masks of which only Python knows the cells

/** The steps that the page makes by itself, under the knobs as they are in the hand. */
export class Exact {
  /** The message that this began with. @type {import("./message.js").Live} */
  sent;
  /** All heads that were sent, by number. @type {Object<string, Head>} */
  heads;
  /** The head that is shown. @type {number} */
  head;
  /** The formula after queries and keys, see kernel.js. */
  formula;
  /** Which of the different queries each query is, where that is the same in all heads; null where none repeat. */
  index;
  /** Whether a hand has turned anything; until then what Python sent is what is so. */
  turned = false;
  /** Steps of the shown head, and weights of every head, as far as they were asked for since the last turn. */
  made = {};
  shares = new Map();
  /** The same of other heads, see `of`. */
  others = {};

  constructor(sent, before) {
    this.sent = sent;
    const { score, share, divisor, cap, temperature, mask } = sent;
    this.formula = { score, share, divisor, cap, temperature, mask };
    this.heads = Object.fromEntries(Object.entries(sent.heads).map(([head, one]) => {
      return [head, new Head(score, one, sent.inputs, before?.heads[head])];
    }));
    this.head = sent.head;
    const all = Object.values(this.heads);
    const { index } = all[0].query;
    this.index = index && all.every(({ query }) => query.index && same(query.index, index)) ? index : null;
  }

  // Takes what a hand has turned, and forgets what depended on the old. Padding stays hidden under any mask. Which
  // cells a custom one hides, or the source's own, only Python knows: until it answers, what it said last stands.
  turn({ mask, head, ...knobs }) {
    Object.assign(this.formula, knobs);
    const last = this.sent.mask;
    if (mask) this.formula.mask = ASKED.includes(mask.kind) ? last : { window: 0, prefix: 0, ...mask, real: last.real };
    if (this.heads[head]) this.head = head;
    this.turned = true;
    this.made = {};
    this.shares = new Map();
    this.others = {};
  }

  get one() { return this.heads[this.head]; }

  // The same of another head, for a map that shows one head whichever is chosen.
  of(head) {
    if (!(head in this.heads) || head === this.head) return this;
    return (this.others[head] ??= Object.assign(Object.create(this), { head, made: {} }));
  }

  get rows() { return this.one.rows; }

  get masks() {
    const { kind, real, bits } = this.formula.mask;
    return kind !== "none" || real || bits;
  }

  // Whether the page can make this step by itself.
  knows(name) { return this.sent.made.includes(name); }

  // The ends of a map's colours: those that Python gave, but the outputs of another temperature need others, and so do
  // weights whose colours are stretched to the largest of all heads.
  colors({ live, zmin, zmax, colorbar, meta }) {
    const stretched = meta?.colors === "stretched";
    if (!this.turned || !(stretched || live.endsWith("output"))) return { zmin, zmax, colorbar };
    const numbers = stretched
      ? Object.values(this.heads).map((head) => this.sharesOf(head))
      : [this.step(live).flat];
    const size = (flat) => flat.reduce((most, number) => Math.max(most, Math.abs(number)), 0);
    const high = Math.max(...numbers.map(size)) || 1;
    const low = stretched ? 0 : -high;
    const tickvals = [low, (low + high) / 2, high];
    const ticktext = tickvals.map((end) => String(Number(end.toPrecision(3))));
    return { zmin: low, zmax: high, colorbar: { ...colorbar, tickvals, ticktext } };
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
    return { flat: STEPS[name](this), index: this.masks ? null : this.index };
  }

  scoresOf(head) { return this.masks || !this.index ? head.scores : head.scoresByWord; }

  // The weights of a head: of the shown one for its own map, of all for the output.
  sharesOf(head) {
    if (!this.shares.has(head)) this.shares.set(head, weights(this.scoresOf(head), head.columns, this.formula));
    return this.shares.get(head);
  }

  // What is drawn of a step between `rows` and `columns` [from, to): the cells, where they lie, how large they are.
  view(name, rows, columns) {
    const across = this.columnsOf(name);
    const small = Math.max(this.rows, across) <= MOST_CELLS;
    const [top, bottom] = small ? [0, this.rows] : clipped(rows, this.rows);
    const [left, right] = small ? [0, across] : clipped(columns, across);
    const block = Math.ceil(Math.max(bottom - top, right - left) / MOST_CELLS);
    const masked = this.masks && ["masked_scores", "weights"].includes(name);
    const { flat, index } = this.step(name);
    return {
      z: pooled(flat, across, block, [top, bottom], [left, right], index),
      ground: masked ? covered(this.formula.mask, across, block, [top, bottom], [left, right]) : null,
      block,
      place: { x0: left + (block - 1) / 2, dx: block, y0: top + (block - 1) / 2, dy: block },
    };
  }

  // One number of a step; a hidden score is NaN.
  numberAt(name, q, k) {
    const { flat, index } = this.step(name);
    return flat[(index ? index[q] : q) * this.columnsOf(name) + k];
  }

  // The cell of largest size in the block that lies at x, y of a view.
  cellAt(name, { place: { x0, y0 }, block }, x, y) {
    const corner = (at, first) => Math.round((at - first) / block) * block + first - (block - 1) / 2;
    const left = corner(x, x0);
    const top = corner(y, y0);
    const across = this.columnsOf(name);
    let found = { x: left, y: top, z: this.numberAt(name, top, left) };
    for (let q = top; q < Math.min(top + block, this.rows); q += 1) {
      for (let k = left; k < Math.min(left + block, across); k += 1) {
        const z = this.numberAt(name, q, k);
        if (!Number.isNaN(z) && !(Math.abs(found.z) >= Math.abs(z))) found = { x: k, y: q, z };
      }
    }
    return found;
  }
}
