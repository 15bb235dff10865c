// What a notebook's output draws: a trace with its controls, or figures alone. loader.js calls it once the scripts are here.

import render from "./figure.js";
import { create } from "./elements.js";
import { TraceLayer } from "./trace_layer.js";

// Unpacks the length of a header (uint32), the header (JSON), and the arrays.
function unpackHeader(bytes) {
  const size = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  return { ...JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size))), arrays: bytes.slice(4 + size) };
}

/** A trace: the layers that Python packed, one of them drawn. `onChange` hears every change of a knob or a cell. */
class TraceOutput {
  constructor(root, bytes, onChange) {
    const { arrays, ...packed } = unpackHeader(bytes);
    Object.assign(this, { root, packed, arrays, onChange, layers: new Map() });
    this.layer = packed.layer;
    this.knobs = this.current.validated(packed.initial);
    this.note();
    this.draw();
  }

  get current() {
    if (!this.layers.has(this.layer)) this.layers.set(this.layer, new TraceLayer(this.packed.layers[this.layer], { arrays: this.arrays, grids: this.packed.grids }));
    return this.layers.get(this.layer);
  }

  // Applies knobs, as texts; a layer that was not packed is ignored.
  set(changes, tell = true) {
    const texts = Object.fromEntries(Object.entries(changes).map(([name, value]) => [name, String(value)]));
    if (this.packed.layers[texts.layer]) this.layer = texts.layer;
    const knobs = this.current.validated({ ...this.knobs, ...texts });
    const isSame = Object.entries(knobs).every(([name, value]) => String(this.knobs[name]) === String(value));
    if (isSame) return;
    this.knobs = knobs;
    this.draw();
    if (tell) this.onChange(this.values());
  }

  // The chosen cell and the knobs, as Python reads them.
  values() {
    const line = this.root.querySelector(".answer-line .number")?.textContent ?? "";
    return { ...this.knobs, layer: this.layer, shown: line };
  }

  act({ knob, cell }) {
    if (knob) this.set(knob);
    if (cell) this.set(this.current.clicked(this.knobs, cell));
  }

  draw() {
    const { bytes, numbers } = this.current.message(this.knobs);
    this.numbers = numbers;
    const host = { act: (action) => this.act(action), isLate: () => false, requestRest() {} };
    render({ data: bytes, parentElement: this.root, setTriggerValue() {} }, host);
    if (this.arithmetic) this.write(this.arithmetic);
  }

  // Shows Python's arithmetic of the chosen cell, where the page has none.
  write(arithmetic) {
    this.arithmetic = arithmetic;
    const { step, head, q, k, shown, sign, short } = arithmetic;
    const isCurrent = step === this.knobs.step && String(q) === this.knobs.q && String(k) === this.knobs.k && String(head) === this.knobs.head
      && String(arithmetic.layer) === this.layer;
    const written = this.root.querySelector(".answer-line .arithmetic");
    if (isCurrent && short && written && !written.textContent && this.root.querySelector(".answer-line .number").textContent === shown) written.textContent = `${sign} ${short}`;
  }

  note() {
    const texts = [this.packed.about, this.packed.left_out].filter(Boolean);
    this.root.querySelector(".about").replaceChildren(...texts.map((text) => create("p", { textContent: text })));
  }
}

/** Figures without controls: the heads of a trace, metrics, a comparison. */
class Figures {
  constructor(root, bytes) {
    Object.assign(this, { root, bytes });
    this.draw();
  }

  set() {}

  draw() {
    const host = { act() {}, isLate: () => false, requestRest() {} };
    render({ data: this.bytes, parentElement: this.root, setTriggerValue() {} }, host);
  }
}

window.attentionLab = {
  open: (root, kind, bytes, onChange = () => {}) => (
    kind === "trace" ? new TraceOutput(root, bytes, onChange) : new Figures(root, bytes)
  ),
};
