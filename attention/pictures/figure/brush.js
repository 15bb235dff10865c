// The overview of a large map, in its corner: a frame marks the part that the map shows. The frame drags; a click or a drag beside it
// shows another part, and so do the keys.

import { paintPixels } from "./cells.js";
import { create } from "./elements.js";
import { MOST_CELLS, clipRange, poolBlocks } from "./pooling.js";
import { AXES, setZoom, visibleRange } from "./zoom.js";

const SIDE = { most: 104, least: 44, edge: 6 }; // pixels of the overview, and of the space around it
const MOST_BLOCKS = 104; // rows or columns of the overview
const CLICK = 4; // pixels that the pointer may move in a click
const LEAST = 8; // rows or columns of the shown part

// The shown rows and columns of a map, each [from, to), and how many there are.
function shownPart(state, figure) {
  const [{ rows, columns }] = figure.layout.meta.panels;
  const [down, across] = [["yaxis", rows], ["xaxis", columns]].map(([axis, size]) => clipRange(visibleRange(state, figure, axis), size));
  return { down, across, rows, columns, isAll: down[1] - down[0] === rows && across[1] - across[0] === columns };
}

// The block maxima of the whole map: those that are drawn, that Python sent beside a part, or that the page computes.
function wholeMap(state, picture, { rows, columns, isAll }) {
  const { figure, live, meta, view } = picture;
  if (!view) return meta.overview ?? figure.data[0].z;
  return isAll ? view.z : picture.layerOf(state).view(live, [-0.5, rows - 0.5], [-0.5, columns - 0.5]).z;
}

function drawPixels(canvas, { z, ...colors }) {
  const [rows, columns] = [z.length, z[0].length];
  const flat = new Float32Array(rows * columns);
  z.forEach((row, i) => flat.set(row, i * columns));
  const [down, across] = [rows, columns].map((size) => Math.ceil(size / MOST_BLOCKS));
  paintPixels(canvas, { ...colors, z: poolBlocks(flat, columns, across, [0, rows], [0, columns], null, down) });
}

// A range of some cells that begins at `from`, within an axis of `size` cells.
function range(from, count, size) {
  const length = Math.min(size, Math.max(Math.min(LEAST, size), Math.round(count)));
  const first = Math.min(size - length, Math.max(0, Math.round(from)));
  return [first, first + length];
}

class Brush {
  constructor(state, picture) {
    Object.assign(this, { state, picture });
    this.canvas = create("canvas");
    this.frame = create("i");
    this.element = create("div", { className: "overview", tabIndex: 0, role: "group", title: "Overview: drag the frame, or click to look closer" }, this.canvas, this.frame);
    this.element.setAttribute("aria-roledescription", "overview: arrow keys move the shown part, plus and minus change its size, Home shows all");
    this.element.addEventListener("pointerdown", (event) => this.press(event));
    this.element.addEventListener("pointermove", (event) => this.drag(event));
    for (const type of ["pointerup", "pointercancel"]) this.element.addEventListener(type, (event) => this.release(event));
    this.element.addEventListener("dblclick", () => this.show(null));
    this.element.addEventListener("keydown", (event) => this.key(event));
    picture.element.append(this.element);
  }

  get part() { return shownPart(this.state, this.picture.figure); }

  // Draws the overview in the corner that the labels of both axes leave free; not where that is too small.
  draw() {
    const { canvas, element, frame, part, picture, state } = this;
    const { l, b } = picture.element._fullLayout._size;
    const side = Math.min(SIDE.most, l - SIDE.edge, b - SIDE.edge);
    element.hidden = side < SIDE.least;
    if (element.hidden) return;
    if (!element.isConnected) picture.element.append(element);
    const { down, across, rows, columns } = part;
    Object.assign(element.style, { width: `${side}px`, height: `${side}px` });
    const [{ zmin, zmax, colorscale, meta }] = picture.element.data;
    drawPixels(canvas, { z: wholeMap(state, picture, part), zmin, zmax, colorscale, meta });
    const percent = (share) => `${100 * share}%`;
    const least = (count, size) => Math.max(count / size, 3 / side); // a frame of few cells is seen, too
    Object.assign(frame.style, {
      left: percent(Math.min(across[0] / columns, 1 - 3 / side)), width: percent(least(across[1] - across[0], columns)),
      top: percent(Math.min(down[0] / rows, 1 - 3 / side)), height: percent(least(down[1] - down[0], rows)),
    });
    element.setAttribute("aria-label", this.words(part));
  }

  words({ down, across, rows, columns, isAll }) {
    const { axes, step } = this.picture.meta;
    const side = (name, [from, to], size) => `${name} ${from} to ${to - 1} of ${size}`;
    const shown = isAll ? `all of ${rows} by ${columns}` : `${side(axes[0], down, rows)}, ${side(axes[1], across, columns)}`;
    return `Overview of ${step.replaceAll("_", " ")}. Shown: ${shown}.`;
  }

  // The row and the column at the position of an event, as parts of a cell too.
  at(event) {
    const box = this.element.getBoundingClientRect();
    const { rows, columns } = this.part;
    const place = (pixel, pixels, size) => Math.min(size, Math.max(0, (pixel / pixels) * size));
    return { row: place(event.clientY - box.y, box.height, rows), column: place(event.clientX - box.x, box.width, columns) };
  }

  // Shows some rows and columns, or all with null; maps that share an axis follow. Python is asked at the `end` of a movement.
  async show(shown, end = true) {
    const { picture, state } = this;
    const ranges = shown ? [shown.across, shown.down] : [null, null];
    AXES.forEach((axis, i) => setZoom(state, picture.figure, axis, ranges[i] && [ranges[i][0] - 0.5, ranges[i][1] - 0.5]));
    this.isEnded ||= end;
    if (this.isPainting) { this.isLate = true; return; }
    this.isPainting = true;
    do {
      this.isLate = false;
      await new Promise(requestAnimationFrame);
      await picture.zoomed(this.isEnded && !this.isLate);
    } while (this.isLate);
    Object.assign(this, { isPainting: false, isEnded: false });
  }

  press(event) {
    const { down, across, isAll } = this.part;
    const { row, column } = this.at(event);
    const isInside = !isAll && row >= down[0] && row < down[1] && column >= across[0] && column < across[1];
    this.grip = { x: event.clientX, y: event.clientY, row, column, moved: false, from: isInside ? { down, across } : null };
    this.element.setPointerCapture(event.pointerId);
    this.element.focus({ preventScroll: true });
    event.preventDefault();
  }

  drag(event) {
    const { grip } = this;
    if (!grip) return;
    grip.moved ||= Math.hypot(event.clientX - grip.x, event.clientY - grip.y) > CLICK;
    if (!grip.moved) return;
    const { rows, columns } = this.part;
    const { row, column } = this.at(event);
    const moved = ([from, to], by, size) => range(from + by, to - from, size);
    const drawn = (a, b, size) => range(Math.min(a, b), Math.abs(b - a), size);
    this.show(grip.from
      ? { down: moved(grip.from.down, row - grip.row, rows), across: moved(grip.from.across, column - grip.column, columns) }
      : { down: drawn(grip.row, row, rows), across: drawn(grip.column, column, columns) }, false);
  }

  release(event) {
    const { grip } = this;
    if (!grip) return;
    this.grip = null;
    if (grip.moved || event.type === "pointercancel") { this.show(this.isShown(), true); return; }
    // A click shows what is around it: as much as now, or single cells.
    const { down, across, rows, columns, isAll } = this.part;
    const around = (place, [from, to], size) => { const count = isAll ? MOST_CELLS : to - from; return range(place - count / 2, count, size); };
    this.show({ down: around(grip.row, down, rows), across: around(grip.column, across, columns) });
  }

  isShown() {
    const { down, across, isAll } = this.part;
    return isAll ? null : { down, across };
  }

  key(event) {
    const { down, across, rows, columns } = this.part;
    const [tall, wide] = [down[1] - down[0], across[1] - across[0]];
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const scales = { "+": 0.5, "=": 0.5, "-": 2, _: 2 };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moves[event.key]) {
      const [y, x] = moves[event.key];
      this.show({ down: range(down[0] + (y * tall) / 4, tall, rows), across: range(across[0] + (x * wide) / 4, wide, columns) });
    } else if (scales[event.key]) {
      const scaled = ([from], count, size) => range(from + (count * (1 - scales[event.key])) / 2, count * scales[event.key], size);
      this.show({ down: scaled(down, tall, rows), across: scaled(across, wide, columns) });
    } else if (event.key === "Home") {
      this.show(null);
    } else return;
    event.preventDefault();
    event.stopPropagation();
    if (this.picture.liveRegion) this.picture.liveRegion.textContent = this.words(this.part);
  }
}

/** Draws the overview of a map that has more cells than are drawn. */
export function drawOverview(state, picture) {
  const { panels, grid } = picture.meta;
  const isLarge = panels.length === 1 && !grid && Math.max(panels[0].rows, panels[0].columns) > MOST_CELLS;
  if (isLarge) picture.brush ??= new Brush(state, picture);
  if (picture.brush && isLarge) picture.brush.draw();
  else if (picture.brush) picture.brush.element.hidden = true;
}
