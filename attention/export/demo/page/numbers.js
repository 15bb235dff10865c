// The numbers of a state's steps under the knobs as they are: Python's own, or as the page makes them once a knob is turned.

import { unpack } from "./message.js";
import { Exact } from "./live.js";
import { asBytes, matrixOf } from "./loading.js";

const MADE = ["scaled_scores", "masked_scores", "weights", "head_output", "output"];

// The mask as the kernel takes it.
const maskOf = ({ mask, window, prefix }) => ({ kind: mask, window: Number(window), prefix: Number(prefix) });

export class Numbers {
  /** What Python has packed, see loading.js. */
  state;
  /** The knobs that differ from those that Python packed, as the figure's arithmetic takes them; null where none does. */
  turned = null;
  matrices = new Map(); // Python's, by step and head
  exacts = new Map(); // the page's arithmetic, by head

  constructor(state, knobs) {
    this.state = state;
    const [view] = Object.values(state.views);
    const packed = Object.fromEntries(view.message.controls.map(({ name, value }) => [name, value]));
    const differs = (name) => knobs[name] !== undefined && Number(knobs[name]) !== Number(packed[name]);
    const turned = {};
    if (differs("temperature")) turned.temperature = Number(knobs.temperature);
    const own = { ...packed, ...knobs };
    if (own.mask && own.mask !== packed.mask) turned.mask = maskOf(own);
    if (own.mask?.includes("window") && differs("window")) turned.mask = maskOf(own);
    if (own.mask === "prefix" && differs("prefix")) turned.mask = maskOf(own);
    if (Object.keys(turned).length) this.turned = turned;
  }

  get heads() { return this.state.heads; }

  get d_k() { return this.state.d_k; }

  get before() { return this.state.before; }

  get factors() { return this.state.factors; }

  get divisor() { return this.state.formula.divisor; }

  get share() { return this.state.formula.share; }

  get temperature() { return this.turned?.temperature ?? this.state.formula.temperature; }

  columns(step) { return this.state.steps[step].columns; }

  // The page's arithmetic of a head, under the knobs as they are.
  exactOf(head) {
    if (!this.exacts.has(head)) {
      const { message } = Object.entries(this.state.views).find(([name]) => name.endsWith(` ${head}`))[1];
      const { live } = unpack(asBytes({ live: message.live, figures: [], names: [] }, this.state.arrays));
      const exact = new Exact(live);
      if (this.turned) exact.turn(this.turned);
      this.exacts.set(head, exact);
    }
    return this.exacts.get(head);
  }

  matrix(step, head) {
    const key = `${step} ${head}`;
    if (!this.matrices.has(key)) {
      const all = this.state.numbers[step];
      this.matrices.set(key, matrixOf(all[all.length > 1 ? this.heads.indexOf(head) : 0], this.state.arrays));
    }
    return this.matrices.get(key);
  }

  // One number; a hidden score is −∞.
  at(step, head, row, column) {
    if (this.turned && MADE.includes(step)) {
      const number = this.exactOf(this.heads.includes(head) ? head : this.heads[0]).numberAt(step, row, column);
      return Number.isNaN(number) ? -Infinity : number;
    }
    const { flat, columns } = this.matrix(step, head);
    const number = flat[row * columns + column];
    return Number.isNaN(number) ? -Infinity : number;
  }

  // The largest size that a step's finite numbers have, in all heads, and the smallest and largest of them.
  ends(step) {
    const { rows, columns, per_head: perHead } = this.state.steps[step];
    let [low, high] = [Infinity, -Infinity];
    for (const head of perHead ? this.heads : this.heads.slice(0, 1)) {
      for (let i = 0; i < rows * columns; i += 1) {
        const number = this.at(step, head, Math.floor(i / columns), i % columns);
        if (number === -Infinity) continue;
        low = Math.min(low, number);
        high = Math.max(high, number);
      }
    }
    return { low, high, size: Math.max(Math.abs(low), Math.abs(high)) };
  }
}
