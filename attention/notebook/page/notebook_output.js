// What a notebook's output draws: a trace with its controls, or figures alone. loader.js calls it once the scripts are here.

import render from "./figure.js";
import { create } from "./elements.js";
import { unpackTrace } from "./packed.js";
import { Player } from "./player.js";

/** A trace, which tells the page around it what a user changes. */
class TraceOutput extends Player {
  constructor(root, bytes, tell) {
    super(root, unpackTrace(bytes));
    this.tell = tell;
    const texts = [this.packed.about, this.packed.left_out].filter(Boolean);
    root.querySelector(".about").replaceChildren(...texts.map((text) => create("p", { textContent: text })));
    this.draw();
  }

  changed() {
    const shown = this.root.querySelector(".answer-line .number")?.textContent ?? "";
    this.tell({ ...this.knobs, layer: this.layer, shown });
  }

  draw() {
    super.draw();
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
  open: (root, kind, bytes, tell = () => {}) => (kind === "trace" ? new TraceOutput(root, bytes, tell) : new Figures(root, bytes)),
};
