// The state of the script between two messages from Python: a `FigureState` for each component of maps,
// at `root.figureState`, with a `Picture` for each map.

/** One map on the screen. */
export class Picture {
  /** The element that Plotly draws into and attaches its state to. @type {HTMLElement} */
  element;
  /** The figure of the last message. @type {import("./message.js").Figure} */
  figure = null;
  /** The part of a step that the page computed for it, see `LiveLayer.view`; null for what Python computed. */
  view = null;
  /** The frame, hidden cells and width of the last paint, to detect that only the cells changed. */
  lastPaint = null;
  /** The cell [row, column] of the keyboard cursor; null until an arrow key is pressed. */
  cursor = null;
  /** The outline of that cell, and the live region that a screen reader reads it from. */
  cursorFrame = null;
  liveRegion = null;
  /** The button that enlarges it, once there was a reason to. @type {?HTMLElement} */
  enlarger = null;
  wasEnlarged = false;
  /** The overview of a large map, see brush.js, and what paints the maps after the shown part has changed. */
  brush = null;
  zoomed = null;
  /** The tooltip of the block under the pointer. */
  tip = null;
  /** The outlines of what stands at the pointer in another figure, see linked_cells.js. @type {?HTMLElement[]} */
  linkFrames = null;
  /** Observes the width. @type {ResizeObserver} */
  resizeObserver = null;
  /** The window last requested from Python, as text. */
  requestedWindow = null;

  constructor(element) {
    this.element = element;
  }

  get meta() { return this.figure.layout.meta; }

  /** The name of the step, if the page computes it. */
  get live() { return this.figure?.data[0].live; }

  /** The head that the map always shows, if any, as a part of a click's event. */
  get fixedHead() {
    const { of_head: head } = this.figure.data[0];
    return head === undefined ? {} : { head };
  }

  /** The live layer with the chosen head, or with the fixed head of this map. */
  layerOf({ liveLayer }) {
    const { head } = this.fixedHead;
    return head === undefined ? liveLayer : liveLayer?.withHead(head);
  }
}

/** All maps of one component and their common state. */
export class FigureState {
  /** The element that contains the maps. @type {HTMLElement} */
  root;
  /** One for each figure, in order. @type {Picture[]} */
  pictures = [];
  /** The figures of the last message. @type {import("./message.js").Figure[]} */
  figures = null;
  /** The figures on the screen: the same, as soon as all of them are painted. */
  painted = null;
  /** The film frame of the last message, the number of the user action that it answers, and its session. */
  filmFrame = 0;
  actNumber = null;
  session = "";
  /** Computes matrices in the page; null where Python computes them all. @type {import("./live_layer.js").LiveLayer} */
  liveLayer = null;
  /** The line of the chosen cell; null where there is none. @type {import("./message.js").Line} */
  line = null;
  /** Writes a number into the line of the chosen cell. */
  showNumber = null;
  /** The zoom ranges, from low to high, by the axis that maps share, see `axisKey`. */
  zooms = new Map();
  /** Whether frames are being painted while the user changes a knob, and whether there is input since the last frame began. */
  animating = false;
  hasNewInput = false;
  /** The number of such frames. */
  frames = 0;
  /** Whether the rest of the page is still to be requested, after `restTimer`; the time of the last request. */
  restPending = false;
  restTimer = 0;
  belowTimer = 0;
  /** Reports a cell of the first screen's map whose mask is to change. */
  click = null;
  /** Reports knobs that were chosen on the first screen. */
  choose = null;
  restRequestedAt = 0;
  constructor(root) {
    this.root = root;
  }

  /** Cancels or delays the request for the rest of the page. */
  cancelRest() {
    clearTimeout(this.restTimer);
  }
}
