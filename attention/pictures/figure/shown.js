// What the script keeps between two messages from Python, all of it in one place: a `Shown` for each component of maps,
// at `root.shown`, and in it a `Picture` for each map.

/** One map on the screen. */
export class Picture {
  /** The element that Plotly draws into, and hangs its own state on. @type {HTMLElement} */
  element;
  /** What Python sent for it last. @type {import("./message.js").Figure} */
  figure = null;
  /** What the page itself has cut out of a step for it, see `Exact.view`; null for what Python has made. */
  view = null;
  /** Which frame, ground and width were painted last, to know whether the cells alone have changed. */
  drawn = null;
  /** The cell [row, column] on which the keyboard stands; null until an arrow is pressed. */
  cursor = null;
  /** The frame around that cell, and what a screen reader says of it. */
  cursorFrame = null;
  spoken = null;
  /** What is said of the block under the pointer. */
  tip = null;
  /** Watches over the width. @type {ResizeObserver} */
  resizes = null;
  /** The window that Python was last asked to cut, as a text. */
  askedWindow = null;

  constructor(element) {
    this.element = element;
  }

  get meta() { return this.figure.layout.meta; }

  /** The name of the step, where the page makes it by itself. */
  get live() { return this.figure?.data[0].live; }

  /** The head that the map shows whichever is chosen, if it does, as a click on it says it. */
  get own() {
    const { of_head: head } = this.figure.data[0];
    return head === undefined ? {} : { head };
  }

  /** What makes it: the page's arithmetic of the chosen head, or of its own. */
  exactOf({ exact }) {
    const { head } = this.own;
    return head === undefined ? exact : exact?.of(head);
  }
}

/** All maps of one component, and where the page stands with them. */
export class Shown {
  /** The element that holds the maps. @type {HTMLElement} */
  root;
  /** One for each figure, in their order. @type {Picture[]} */
  pictures = [];
  /** The figures that Python sent last. @type {import("./message.js").Figure[]} */
  figures = null;
  /** The figures that are on the screen: the same, as soon as all of them are painted. */
  painted = null;
  /** Which picture of a film Python sent last, the number of the act that it answers, and of which session they are. */
  act = 0;
  number = null;
  session = "";
  /** What makes matrices in the page; null where Python makes them all. @type {import("./live.js").Exact} */
  exact = null;
  /** The step, row and column of the chosen cell, if there is one. */
  chosen = null;
  /** Writes a number into the line of the chosen cell. */
  say = null;
  /** What somebody has zoomed to, from low to high, by the axis that maps share, see `axisOf`. */
  zooms = new Map();
  /** Whether frames are being painted while a hand turns a knob, and whether it has turned on since the last began. */
  following = false;
  turnedOn = false;
  /** How many such frames there were. */
  frames = 0;
  /** Whether the rest of the page has still to follow what was done, after `restTimer`; when it was last asked to. */
  owes = false;
  restTimer = 0;
  asked = 0;
  constructor(root) {
    this.root = root;
  }

  /** The rest of the page needs not follow any more, or not yet. */
  wait() {
    clearTimeout(this.restTimer);
  }
}
