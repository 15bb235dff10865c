// A state with its views, as the Lab's own page shows it: what Python answers there to a turn or a click, the page answers here.

import { explain } from "./explain.js";
import { asBytes } from "./loading.js";
import { Numbers } from "./numbers.js";
import { shown } from "./printed.js";
import { mark, turn } from "./turned.js";

const within = (value, count) => Math.min(Math.max(0, Math.trunc(Number(value)) || 0), count - 1);

export class Lab {
  constructor(state) {
    this.state = state;
    const { controls } = Object.values(state.views)[0].message;
    this.controls = controls.filter(({ name }) => name !== "head");
    this.first = { ...state.first, ...Object.fromEntries(this.controls.map(({ name, value }) => [name, value])) };
  }

  // What the address asks for, as far as there is such a thing.
  settled(asked) {
    const { state, first } = this;
    const now = { ...first, ...asked, layer: first.layer };
    for (const { name, kind, options, low, high } of this.controls) {
      const value = Number(now[name]);
      const number = now[name] !== "" && value >= low && value <= high && (kind !== "whole" || Number.isInteger(value));
      const may = kind === "choice" ? options.includes(now[name]) : number;
      if (!may || value === Number(first[name])) now[name] = first[name]; // 1 is 1.0
    }
    if (!state.heads.includes(Number(now.head))) now.head = first.head;
    if (!state.steps[now.step]) now.step = first.step;
    if (!state.views[this.viewOf(now)]) now.view = "factors";
    const { rows, columns } = state.steps[now.step];
    return { ...now, q: String(within(now.q, rows)), k: String(within(now.k, columns)) };
  }

  // What differs from how the state begins, for the address.
  differing(now) {
    return Object.fromEntries(Object.entries(now).filter(([name, value]) => String(value) !== this.first[name]));
  }

  // The same as a link of the Lab.
  link(now) {
    const { layer, ...knobs } = now;
    const shownNow = { ...(layer === "0" ? {} : { layer }), ...knobs };
    if (shownNow.view === "heads") delete shownNow.view;
    return new URLSearchParams({ ...this.state.link, ...shownNow });
  }

  viewOf({ view, step, head }) { return `${view} ${step} ${head}`; }

  // Where a click leads, as attention.pictures.factors.clicked says it.
  clicked(now, { step, x, y, head }) {
    const { state } = this;
    if (step === "head_output of all heads") {
      const { columns } = state.steps.head_output;
      return { step: "head_output", head: String(state.heads[Math.floor(x / columns)]), q: String(y), k: String(x % columns) };
    }
    if (state.steps[step]) return { step, q: String(y), k: String(x), ...(head === undefined ? {} : { head: String(head) }) };
    const view = state.views[this.viewOf(now)];
    const at = view.message.figures.findIndex(({ layout }) => layout.meta.step === step);
    const place = [now.q, now.k];
    view.marked[at]?.forEach((side, i) => { if (side === 0 || side === 1) place[side] = String([y, x][i]); });
    return { q: place[0], k: place[1] };
  }

  // Everything as the figure takes it, and the numbers behind it.
  message(now) {
    const { state } = this;
    const numbers = new Numbers(state, now);
    const cell = { step: now.step, head: Number(now.head), row: Number(now.q), column: Number(now.k) };
    const { message, marked } = state.views[this.viewOf(now)];
    const header = structuredClone(message);
    header.figures.forEach((figure, i) => {
      if (numbers.turned) turn(figure, numbers);
      mark(figure, marked[i], cell, state.outline);
    });
    if (header.live) {
      header.live.temperature = numbers.temperature;
      if (numbers.turned?.mask) Object.assign(header.live.mask, numbers.turned.mask);
    }
    for (const control of header.controls) control.value = String(now[control.name]);
    header.own = this.own(now, numbers);
    header.line = this.line(cell, numbers);
    return { bytes: asBytes(header, state.arrays), numbers };
  }

  // What is said of numbers that are a notebook's or a model's, and of those that are not any more.
  own(now, numbers) {
    const { whose } = this.state;
    if (!whose) return null;
    const back = Object.fromEntries(this.controls.map(({ name }) => [name, this.first[name]]));
    if (!numbers.turned) return { said: `The ${whose}'s own numbers.`, back: {}, changed: false };
    return { said: `What if: other knobs than the ${whose}'s own.`, back, changed: false };
  }

  line(cell, numbers) {
    const { step, row, column } = cell;
    const { rows, columns, sides } = this.state.steps[step];
    const found = this.explained(cell, numbers);
    const side = (name, { axis, tokens }, value, count) => ({ name, axis, token: tokens[value], value, high: count - 1 });
    return {
      step,
      steps: Object.keys(this.state.steps),
      at: { step, row, column },
      sides: [side("q", sides[0], row, rows), side("k", sides[1], column, columns)],
      shown: found.shown,
      sign: found.sign,
      short: found.short,
      from: found.from.map((one) => this.back(one, step)),
    };
  }

  // A cell that another came from: its name, and what to turn to see it.
  back([step, head, row, column], from) {
    const ofHead = this.state.steps[step].per_head;
    const name = `${step} [${row}, ${column}]`;
    return {
      turn: { view: "factors", step, ...(ofHead ? { head } : {}), q: row, k: column },
      label: ofHead && !this.state.steps[from].per_head ? `${name} of head ${head}` : name,
    };
  }

  explained(cell, numbers) {
    const packed = this.state.lines[cell.step];
    if (!packed) {
      const { steps } = this.state;
      const found = explain(numbers, cell);
      const cells = found.from.filter(([name]) => steps[name]); // a parameter has none
      return { ...found, from: cells.map(([name, head, ...place]) => [name, steps[name].per_head ? head : 0, ...place]) };
    }
    const lines = packed.length > 1 ? packed[this.state.heads.indexOf(cell.head)] : packed[0];
    const [value, sign, short, from] = lines[cell.row * this.state.steps[cell.step].columns + cell.column];
    return { shown: value, sign, short, from };
  }

  // The numbers of the chosen step as rows of texts, with the names of rows and columns.
  table(now, numbers) {
    const { rows, columns, sides: [down, across] } = this.state.steps[now.step];
    const named = ({ tokens }, i) => `${i} ${tokens[i]}`.trim();
    const written = (row, column) => {
      const cell = { step: now.step, head: Number(now.head), row, column };
      return this.state.lines[now.step] ? this.explained(cell, numbers).shown : shown(numbers.at(now.step, cell.head, row, column));
    };
    return {
      caption: `${now.step}${this.state.steps[now.step].per_head ? `, head ${now.head}` : ""}: ${down.axis} by ${across.axis}`,
      across: Array.from({ length: columns }, (_, i) => named(across, i)),
      rows: Array.from({ length: rows }, (_, row) => [named(down, row), ...Array.from({ length: columns }, (__, i) => written(row, i))]),
    };
  }
}
