// A training, frame by frame. Its training data are not stored: only the weights of each frame are.

import { explain } from "./explain.js";
import { asBytes, matrixOf } from "./packed.js";
import { formatNumber } from "./number_text.js";
import { markCell } from "./figure_updates.js";
import { toIndex } from "./lab.js";

export class Film {
  constructor(state) {
    this.state = state;
    this.initial = state.initial;
    this.steps = state.film.map(({ step }) => String(step));
  }

  // The knobs with valid values.
  validated(requested) {
    const knobs = { ...this.initial, ...requested };
    if (!this.steps.includes(knobs.at)) knobs.at = this.initial.at;
    if (!this.state.layers.includes(knobs.step)) knobs.step = this.initial.step;
    const count = this.state.sides[0].tokens.length;
    return { at: knobs.at, step: knobs.step, q: String(toIndex(knobs.q, count)), k: String(toIndex(knobs.k, count)) };
  }

  // The knobs that differ from the initial ones.
  changedKnobs(knobs) {
    return Object.fromEntries(Object.entries(knobs).filter(([name, value]) => value !== this.initial[name]));
  }

  // The query of the same state in the Lab.
  labQuery({ at, step, q, k }) {
    const position = at === this.steps.at(-1) ? {} : { at };
    return new URLSearchParams({ ...this.state.link, ...position, layer: this.state.layers.indexOf(step), step: "weights", q, k });
  }

  clicked(_, { step, x, y }) { return { step, q: String(y), k: String(x) }; }

  frame({ at }) { return this.state.film[this.steps.indexOf(at)]; }

  message(knobs) {
    const { state } = this;
    const { message, numbers } = this.frame(knobs);
    const header = structuredClone(message);
    const cell = { step: "weights", head: 0, row: Number(knobs.q), column: Number(knobs.k) };
    const matrices = Object.fromEntries(Object.entries(numbers[knobs.step]).map(([name, packed]) => [name, matrixOf(packed, state.arrays)]));
    header.figures.forEach((figure) => {
      if (figure.layout.meta.step !== knobs.step) return;
      const { shapes } = figure.layout; // the cells of the expected rule stay outlined
      markCell(figure, [0, 1], cell, state.outline);
      figure.layout.shapes = [...(shapes ?? []), ...figure.layout.shapes.slice(-1)];
    });
    header.line = this.line(knobs, cell, matrices);
    return { bytes: asBytes(header, state.arrays), numbers: matrices };
  }

  line({ step }, cell, matrices) {
    const at = (name, _, row, column) => {
      const { flat, columns } = matrices[name];
      return Number.isNaN(flat[row * columns + column]) ? -Infinity : flat[row * columns + column];
    };
    const explanation = explain({ at, columns: (name) => matrices[name].columns, normalizer: "softmax" }, cell);
    const sides = this.state.sides.map(({ axis, tokens }, i) => {
      const value = [cell.row, cell.column][i];
      return { name: "qk"[i], axis, token: tokens[value], value, high: tokens.length - 1 };
    });
    return { ...explanation, step, steps: this.state.layers, at: { step, row: cell.row, column: cell.column }, sides, from: [] };
  }

  answers(knobs) { return this.frame(knobs).answers; }

  table(knobs, matrices) {
    const { flat, rows, columns } = matrices.weights;
    const [down, across] = this.state.sides.map(({ tokens }) => tokens.map((token, i) => `${i} ${token}`));
    return {
      caption: `${knobs.step} at step ${knobs.at}: query by key`,
      across,
      rows: Array.from({ length: rows }, (_, row) => [down[row], ...Array.from({ length: columns }, (__, i) => formatNumber(flat[row * columns + i]))]),
    };
  }
}
