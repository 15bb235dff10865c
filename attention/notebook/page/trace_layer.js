// One layer of a trace in a notebook: the Lab without a server, whose views are composed when they are needed.

import { explain } from "./explain.js";
import { Lab } from "./lab.js";
import { formatNumber } from "./number_text.js";
import { Numbers } from "./numbers.js";

/** The numbers of a layer. What Python did not send, because the text is long, is computed here from Q and K. */
class LayerNumbers extends Numbers {
  constructor(state, knobs) {
    super(state, knobs);
    const { mask } = this.changes ?? {};
    if (mask) mask.real = state.live.mask.real; // padding stays hidden
    if (mask?.kind === "own") Object.assign(mask, state.live.mask);
  }

  at(step, head, row, column) {
    const { computable, numbers, heads } = this.state;
    const isLive = this.changes ? computable.includes(step) && step !== "scores" : !numbers[step];
    if (!isLive) return this.packedNumber(step, head, row, column);
    const number = this.liveLayerOf(heads.includes(head) ? head : heads[0]).numberAt(step, row, column);
    return Number.isNaN(number) ? -Infinity : number;
  }
}

// The views of a layer by "view step head", each composed on first access.
function composeViews(layer) {
  const views = {};
  for (const [key, { figures, marked, strip }] of Object.entries(layer.views)) {
    layer.heads.forEach((head, i) => {
      let composed;
      views[`${key} ${head}`] = {
        marked,
        get message() {
          return (composed ??= {
            figures: figures[i].map((index) => layer.figures[index]),
            names: layer.labels,
            sources: [],
            live: layer.live && { ...layer.live, head },
            controls: layer.controls.map((control) => ({ ...control })),
            strip,
            override: null, line: null, defaults: null, defer_rest: false, large: false,
            film_frame: 0, session: "", key: "", act_number: null,
          });
        },
      };
    });
  }
  return views;
}

/** A layer as Python packed it (attention/export/packing.py). */
export class TraceLayer extends Lab {
  constructor(layer, { arrays, grids }) {
    super({ ...layer, views: composeViews(layer), arrays, grids });
  }

  numbersOf(knobs) { return new LayerNumbers(this.state, knobs); }

  // The arithmetic of a cell: Python's, the page's, or none, where Python did not pack it and the page cannot write it.
  explained(cell, numbers) {
    const { lines, explained, steps, computable } = this.state;
    const isChanged = numbers.changes && computable.includes(cell.step) && cell.step !== "scores";
    if (lines[cell.step] && !isChanged) return super.explained(cell, numbers);
    if (explained.includes(cell.step)) {
      const { from, ...explanation } = explain(numbers, cell);
      const cells = from.filter(([name]) => steps[name]);
      return { ...explanation, from: cells.map(([name, head, ...place]) => [name, steps[name].per_head ? head : 0, ...place]) };
    }
    return { shown: formatNumber(numbers.at(cell.step, cell.head, cell.row, cell.column)), sign: "=", short: "", from: [] };
  }
}
