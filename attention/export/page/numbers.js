// The numbers of a layer's steps for the current knobs: Python's, or computed in the page, after a knob changed or where Python
// sent only Q and K, because the text is long.

import { unpack } from "./message.js";
import { LiveLayer } from "./live_layer.js";
import { asBytes, matrixOf } from "./packed.js";

// The mask in the form of the kernel.
const maskOf = ({ mask, window, prefix }) => ({ kind: mask, window: Number(window), prefix: Number(prefix) });

export class Numbers {
  /** The layer as Python packed it, with the arrays. */
  state;
  /** The knobs that differ from the packed ones, in the form of `LiveLayer`; null if none differ. */
  changes = null;
  matrices = new Map(); // Python's, by step and head
  liveLayers = new Map(); // by head

  constructor(state, knobs) {
    this.state = state;
    const packed = Object.fromEntries(state.controls.map(({ name, value }) => [name, value]));
    const differs = (name) => knobs[name] !== undefined && Number(knobs[name]) !== Number(packed[name]);
    const changes = {};
    if (differs("temperature")) changes.temperature = Number(knobs.temperature);
    const knobsNow = { ...packed, ...knobs };
    if (knobsNow.mask && knobsNow.mask !== packed.mask) changes.mask = maskOf(knobsNow);
    if (knobsNow.mask?.includes("window") && differs("window")) changes.mask = maskOf(knobsNow);
    if (knobsNow.mask === "prefix" && differs("prefix")) changes.mask = maskOf(knobsNow);
    if (changes.mask) changes.mask.real = state.live.mask.real; // padding stays hidden
    if (changes.mask?.kind === "own") Object.assign(changes.mask, state.live.mask);
    if (Object.keys(changes).length) this.changes = changes;
  }

  get heads() { return this.state.heads; }

  get d_k() { return this.state.d_k; }

  get before() { return this.state.before; }

  get factors() { return this.state.factors; }

  get divisor() { return this.state.formula.divisor; }

  get normalizer() { return this.state.formula.normalizer; }

  get temperature() { return this.changes?.temperature ?? this.state.formula.temperature; }

  columns(step) { return this.state.steps[step].columns; }

  // The live layer with this head as its current head, for the current knobs.
  liveLayerOf(head) {
    if (!this.liveLayers.has(head)) {
      const { live } = unpack(asBytes({ live: { ...this.state.live, head }, figures: [], names: [] }, this.state.arrays));
      const layer = new LiveLayer(live);
      if (this.changes) layer.update(this.changes);
      this.liveLayers.set(head, layer);
    }
    return this.liveLayers.get(head);
  }

  matrix(step, head) {
    const key = `${step} ${head}`;
    if (!this.matrices.has(key)) {
      const heads = this.state.numbers[step];
      this.matrices.set(key, matrixOf(heads[heads.length > 1 ? this.heads.indexOf(head) : 0], this.state.arrays));
    }
    return this.matrices.get(key);
  }

  // Whether the knobs have changed a step, so that what Python packed of it is no longer valid.
  isChanged(step) { return Boolean(this.changes) && step !== "scores" && this.state.computable.includes(step); }

  // One number; a hidden score is −∞.
  at(step, head, row, column) {
    if (!this.isChanged(step) && this.state.numbers[step]) return this.packedNumber(step, head, row, column);
    const number = this.liveLayerOf(this.heads.includes(head) ? head : this.heads[0]).numberAt(step, row, column);
    return Number.isNaN(number) ? -Infinity : number;
  }

  // One of Python's numbers.
  packedNumber(step, head, row, column) {
    const { flat, columns } = this.matrix(step, head);
    const number = flat[row * columns + column];
    return Number.isNaN(number) ? -Infinity : number;
  }

  // The smallest, the largest, and the largest magnitude of a step's finite numbers in all heads.
  range(step) {
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
    return { low, high, magnitude: Math.max(Math.abs(low), Math.abs(high)) };
  }
}
