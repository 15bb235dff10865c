// Plays a packed trace on a page without a server: what a user does becomes knobs, and the knobs a picture. A notebook's output and
// the demo play the same; each adds what surrounds it (notebook/page/notebook_output.js, demo/page/demo.js).

import render from "./figure.js";
import { Lab } from "./lab.js";

export class Player {
  /** @param root where it draws @param packed the trace, see packed.js @param knobs those to begin with; others are as packed */
  constructor(root, packed, knobs = {}) {
    Object.assign(this, { root, packed, layer: packed.layer, labs: new Map() });
    this.host = { act: (action) => this.act(action), isLate: () => false, requestRest() {} }; // every action is answered at once
    this.knobs = this.current.validated(knobs);
  }

  /** The shown layer. */
  get current() {
    if (!this.labs.has(this.layer)) this.labs.set(this.layer, new Lab(this.packed, this.layer));
    return this.labs.get(this.layer);
  }

  /** Applies knobs; a layer that was not packed is ignored. Nothing happens if they change nothing; but a user's field is drawn anew. */
  set(changes, byUser = false) {
    const texts = Object.fromEntries(Object.entries(changes).map(([name, value]) => [name, String(value)]));
    if (this.packed.layers[texts.layer]) this.layer = texts.layer;
    const knobs = this.current.validated({ ...this.knobs, ...texts });
    const isSame = Object.entries(knobs).every(([name, value]) => String(this.knobs[name]) === String(value));
    this.knobs = knobs;
    if (!isSame || byUser) this.draw();
    if (!isSame && byUser) this.changed(Object.keys(changes));
  }

  act({ knob, cell }) {
    if (knob) this.set(knob, true);
    if (cell) this.set(this.current.clicked(this.knobs, cell), true);
  }

  draw() {
    const { bytes, numbers } = this.current.message(this.knobs);
    this.numbers = numbers;
    render({ data: bytes, parentElement: this.root, setTriggerValue() {} }, this.host);
  }

  /** What follows a user's change of the knobs with these names. */
  changed() {}
}
