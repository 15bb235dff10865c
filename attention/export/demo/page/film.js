// A training, picture by picture: what it learned from is gone, and only the weights are there to be asked.

import { explain } from "./explain.js";
import { asBytes, matrixOf } from "./loading.js";
import { shown } from "./printed.js";
import { mark } from "./turned.js";

const within = (value, count) => Math.min(Math.max(0, Math.trunc(Number(value)) || 0), count - 1);

export class Film {
  constructor(state) {
    this.state = state;
    this.first = state.first;
    this.steps = state.film.map(({ step }) => String(step));
  }

  settled(asked) {
    const now = { ...this.first, ...asked };
    if (!this.steps.includes(now.at)) now.at = this.first.at;
    if (!this.state.layers.includes(now.step)) now.step = this.first.step;
    const count = this.state.sides[0].tokens.length;
    return { at: now.at, step: now.step, q: String(within(now.q, count)), k: String(within(now.k, count)) };
  }

  differing(now) {
    return Object.fromEntries(Object.entries(now).filter(([name, value]) => value !== this.first[name]));
  }

  link({ at, step, q, k }) {
    const learned = at === this.steps.at(-1) ? {} : { at };
    return new URLSearchParams({ ...this.state.link, ...learned, layer: this.state.layers.indexOf(step), step: "weights", q, k });
  }

  clicked(_, { step, x, y }) { return { step, q: String(y), k: String(x) }; }

  picture({ at }) { return this.state.film[this.steps.indexOf(at)]; }

  message(now) {
    const { state } = this;
    const { message, numbers } = this.picture(now);
    const header = structuredClone(message);
    const cell = { step: "weights", head: 0, row: Number(now.q), column: Number(now.k) };
    const matrices = Object.fromEntries(Object.entries(numbers[now.step]).map(([name, one]) => [name, matrixOf(one, state.arrays)]));
    header.figures.forEach((figure) => {
      if (figure.layout.meta.step !== now.step) return;
      const { shapes } = figure.layout; // what the rule says matters stays outlined
      mark(figure, [0, 1], cell, state.outline);
      figure.layout.shapes = [...(shapes ?? []), ...figure.layout.shapes.slice(-1)];
    });
    header.line = this.line(now, cell, matrices);
    return { bytes: asBytes(header, state.arrays), numbers: matrices };
  }

  line({ step }, cell, matrices) {
    const at = (name, _, row, column) => {
      const { flat, columns } = matrices[name];
      return Number.isNaN(flat[row * columns + column]) ? -Infinity : flat[row * columns + column];
    };
    const found = explain({ at, columns: (name) => matrices[name].columns, share: "softmax" }, cell);
    const sides = this.state.sides.map(({ axis, tokens }, i) => {
      const value = [cell.row, cell.column][i];
      return { name: "qk"[i], axis, token: tokens[value], value, high: tokens.length - 1 };
    });
    return { ...found, step, steps: this.state.layers, at: { step, row: cell.row, column: cell.column }, sides, from: [] };
  }

  answers(now) { return this.picture(now).answers; }

  table(now, matrices) {
    const { flat, rows, columns } = matrices.weights;
    const [down, across] = this.state.sides.map(({ tokens }) => tokens.map((token, i) => `${i} ${token}`));
    return {
      caption: `${now.step} at step ${now.at}: query by key`,
      across,
      rows: Array.from({ length: rows }, (_, row) => [down[row], ...Array.from({ length: columns }, (__, i) => shown(flat[row * columns + i]))]),
    };
  }
}
