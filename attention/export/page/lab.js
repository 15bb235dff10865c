// One layer of a packed trace with its views, as the Lab shows it: here the page answers clicks and changed knobs itself, as Python does in the Lab.

import { explain } from "./explain.js";
import { asBytes, MoreArrays } from "./packed.js";
import { Numbers } from "./numbers.js";
import { formatNumber } from "./number_text.js";
import { applyChanges, markCell, setColorRange } from "./figure_updates.js";
import { drawOverPicture } from "./picture_redraw.js";

export const toIndex = (value, count) => Math.min(Math.max(0, Math.trunc(Number(value)) || 0), count - 1);

const viewName = ({ view, step }) => `${view} ${step}`;

export class Lab {
  /** @param packed the trace as attention/export/packing.py packed it @param layer the index of the layer, as a text */
  constructor({ layers, arrays, grids, outline, link, layer: first }, layer = first) {
    const state = { ...layers[layer], arrays, grids, outline, link };
    this.state = state;
    this.controls = state.controls.filter(({ name }) => name !== "head");
    this.initial = { ...state.initial, ...Object.fromEntries(this.controls.map(({ name, value }) => [name, value])) };
  }

  // The knobs of the address, with invalid values replaced by the initial ones.
  validated(requested) {
    const { state, initial } = this;
    const knobs = { ...initial, ...requested, layer: initial.layer };
    for (const { name, kind, options, low, high } of this.controls) {
      const value = Number(knobs[name]);
      const isNumber = knobs[name] !== "" && value >= low && value <= high && (kind !== "whole" || Number.isInteger(value));
      const isValid = kind === "choice" ? options.includes(knobs[name]) : isNumber;
      if (!isValid || value === Number(initial[name])) knobs[name] = initial[name]; // 1 is 1.0
    }
    if (!state.heads.includes(Number(knobs.head))) knobs.head = initial.head;
    if (!state.steps[knobs.step]) knobs.step = initial.step;
    if (!state.views[viewName(knobs)]) knobs.view = "factors";
    const { rows, columns } = state.steps[knobs.step];
    return { ...knobs, q: String(toIndex(knobs.q, rows)), k: String(toIndex(knobs.k, columns)) };
  }

  // The knobs that differ from the initial ones, for the address.
  changedKnobs(knobs) {
    return Object.fromEntries(Object.entries(knobs).filter(([name, value]) => String(value) !== this.initial[name]));
  }

  // The query of the same picture in the Lab.
  labQuery(knobs) {
    const { layer, ...others } = knobs;
    const query = { ...(layer === "0" ? {} : { layer }), ...others };
    if (query.view === "heads") delete query.view;
    return new URLSearchParams({ ...this.state.link, ...query });
  }

  // The knobs that a click sets, as in attention.pictures.steps_view.cell_of_click.
  clicked(knobs, { step, x, y, head }) {
    const { state } = this;
    if (step === "head_output of all heads") {
      const { columns } = state.steps.head_output;
      return { step: "head_output", head: String(state.heads[Math.floor(x / columns)]), q: String(y), k: String(x % columns) };
    }
    if (state.steps[step]) return { step, q: String(y), k: String(x), ...(head === undefined ? {} : { head: String(head) }) };
    const { marked } = state.views[viewName(knobs)];
    const index = this.figures(knobs).findIndex(({ layout }) => layout.meta.step === step);
    const cell = [knobs.q, knobs.k];
    marked[index]?.forEach((side, i) => { if (side === 0 || side === 1) cell[side] = String([y, x][i]); });
    return { q: cell[0], k: cell[1] };
  }

  numbersOf(knobs) { return new Numbers(this.state, knobs); }

  // The figures of a view, as Python packed them.
  figures(knobs) {
    const { figures, heads, views } = this.state;
    return views[viewName(knobs)].figures[heads.indexOf(Number(knobs.head))].map((index) => figures[index]);
  }

  // The message for the figure, and the numbers behind it.
  message(knobs) {
    const { state } = this;
    const numbers = this.numbersOf(knobs);
    const cell = { step: knobs.step, head: Number(knobs.head), row: Number(knobs.q), column: Number(knobs.k) };
    const { marked, limits, strip } = state.views[viewName(knobs)];
    const header = structuredClone({
      figures: this.figures(knobs),
      names: state.labels,
      sources: [],
      live: state.live && { ...state.live, head: cell.head },
      controls: state.controls.filter(({ name }) => name !== "head" || knobs.view !== "heads"),
      strip,
      override: this.overrideNote(numbers),
      line: this.line(cell, numbers),
      defaults: null, defer_rest: false, large: false, film_frame: 0, session: "", key: "", act_number: null,
    });
    const arrays = new MoreArrays(state.arrays);
    header.figures.forEach((figure, i) => {
      if (figure.layout.meta.packed) {
        drawOverPicture(figure, cell, numbers, state, { store: (rows) => arrays.add(rows), sources: header.sources });
        return;
      }
      if (numbers.changes) applyChanges(figure, numbers);
      if (limits?.[i]) setColorRange(figure.data[0], limits[i]);
      markCell(figure, marked[i], cell, state.outline);
    });
    if (header.live) {
      header.live.temperature = numbers.temperature;
      if (numbers.changes?.mask) Object.assign(header.live.mask, numbers.changes.mask);
    }
    for (const control of header.controls) control.value = String(knobs[control.name]);
    return { bytes: asBytes(header, arrays.all), numbers };
  }

  // The note about the numbers of a notebook or a model, and whether knobs override its formula.
  overrideNote(numbers) {
    const { source_label: sourceLabel } = this.state;
    if (!sourceLabel) return null;
    if (!numbers.changes) return { text: `The ${sourceLabel}'s own numbers.`, reset: {}, changed: false };
    const reset = Object.fromEntries(this.controls.map(({ name }) => [name, this.initial[name]]));
    return { text: `What if: other knobs than the ${sourceLabel}'s own.`, reset, changed: false };
  }

  line(cell, numbers) {
    const { step, row, column } = cell;
    const { rows, columns, sides } = this.state.steps[step];
    const { shown, sign, short, from } = this.explained(cell, numbers);
    const hidden = short.endsWith(": hidden by the mask"); // as `steps_view.cell_line` says it, without the rule
    const side = (name, { axis, tokens }, value, count) => ({ name, axis, token: tokens[value], value, high: count - 1 });
    return {
      step,
      steps: Object.keys(this.state.steps),
      sides: [side("q", sides[0], row, rows), side("k", sides[1], column, columns)],
      ...(hidden ? { shown: `${shown}, hidden`, sign: "by", short: "the mask" } : { shown, sign, short }),
      from: from.map((source) => this.sourceLink(source, step)),
    };
  }

  // The label and the knobs of a cell that a cell of `step` was computed from.
  sourceLink([source, head, row, column], step) {
    const perHead = this.state.steps[source].per_head;
    const name = `${source} [${row}, ${column}]`;
    return {
      knobs: { view: "factors", step: source, ...(perHead ? { head } : {}), q: row, k: column },
      label: perHead && !this.state.steps[step].per_head ? `${name} of head ${head}` : name,
    };
  }

  // The arithmetic of a cell: as Python packed it, written by the page, or none where neither can.
  explained(cell, numbers) {
    const { lines, explained, steps, heads } = this.state;
    const packed = lines[cell.step];
    if (packed && !numbers.isChanged(cell.step)) {
      const ofHead = packed.length > 1 ? packed[heads.indexOf(cell.head)] : packed[0];
      const [shown, sign, short, from] = ofHead[cell.row * steps[cell.step].columns + cell.column];
      return { shown, sign, short, from };
    }
    if (!explained.includes(cell.step)) {
      return { shown: formatNumber(numbers.at(cell.step, cell.head, cell.row, cell.column)), sign: "=", short: "", from: [] };
    }
    const { from, ...explanation } = explain(numbers, cell);
    const cells = from.filter(([name]) => steps[name]); // parameters are not computed
    return { ...explanation, from: cells.map(([name, head, ...place]) => [name, steps[name].per_head ? head : 0, ...place]) };
  }

  // The numbers of the chosen step as rows of texts, with the labels of rows and columns.
  table(knobs, numbers) {
    const { rows, columns, sides: [down, across] } = this.state.steps[knobs.step];
    const label = ({ tokens }, i) => `${i} ${tokens[i]}`.trim();
    const textOf = (row, column) => {
      const cell = { step: knobs.step, head: Number(knobs.head), row, column };
      return this.state.lines[knobs.step] ? this.explained(cell, numbers).shown : formatNumber(numbers.at(knobs.step, cell.head, row, column));
    };
    return {
      caption: `${knobs.step}${this.state.steps[knobs.step].per_head ? `, head ${knobs.head}` : ""}: ${down.axis} by ${across.axis}`,
      across: Array.from({ length: columns }, (_, i) => label(across, i)),
      rows: Array.from({ length: rows }, (_, row) => [label(down, row), ...Array.from({ length: columns }, (__, i) => textOf(row, i))]),
    };
  }
}
