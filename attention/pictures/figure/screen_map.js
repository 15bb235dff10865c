// The large map of a first screen: a Plotly heatmap between the queries at its left and the keys above it, and over it the words,
// the outlines of the chosen pair, the digits of its row, and what the film hides and shows.

import { repaint as repaintCells } from "./cells.js";
import { write } from "./elements.js";
import { loadPlotly } from "./message.js";
import { between, ease, place, points, said, signed } from "./screen_numbers.js";
import { css, mix } from "./screen_look.js";

const CONFIG = { displayModeBar: false, responsive: false, scrollZoom: false, doubleClick: "reset" };
const GAP = 8; // pixels between the map and its strips, on the grid of 8
const DRAG = 5; // pixels that the pointer may move in a click
export const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

// The size of a row's digits, which grow with its cells; 0 where not even the smallest fit.
function digitSize({ x, y }, texts, look) {
  const { axis, label, text, word } = look.size;
  const cell = Math.min(x, y * 1.3);
  const fits = (size) => y >= size * 1.15 && Math.max(...texts.map((digits) => look.width(digits, size))) <= x - 4;
  return [[word, 2.6], [text, 2.6], [label, 2.2], [axis, 0]].find(([size, room]) => cell >= size * room && fits(size))?.[0] ?? 0;
}

// Whether digits beside each other are apart, where they may reach beyond their cells.
const areApart = (texts, room, size, look) => texts.every((text, i) => !text || !texts[i + 1] || (look.width(text, size, 700) + look.width(texts[i + 1], size, 700)) / 2 + 4 <= room);

// What stands at the left of the map of a term, and above it: the factors of its product.
function strips(numbers, term) {
  const { query, key, value } = numbers.sent.vectors;
  const rows = (name, { strip, rows: all }) => ({ rows: strip ?? all, limit: numbers.stripLimit(name) });
  if (term === "collect") {
    return {
      left: { role: "weight", symbol: numbers.sent.compared ? "" : "A", does: "shares", rows: numbers.has("share") ? numbers.matrix("share") : null, isShare: numbers.isShare("share"), limit: numbers.has("share") && numbers.limit("share") },
      top: { role: "value", symbol: "V", does: "carries", ...(value ? rows("value", value) : {}), across: true },
    };
  }
  return {
    left: { role: "query", symbol: "Q", does: "looks for", ...(query ? rows("query", query) : {}) },
    top: { role: "key", symbol: "K", isTurned: true, does: "offers", ...(key ? rows("key", key) : {}) },
  };
}

const transposed = (rows) => Array.from(rows[0], (_, i) => rows.map((row) => row[i]));

let maps = 0; // on the page, for the names of their clips

export class LargeMap {
  /** The geometry in pixels of what is drawn, null before. */
  geometry = null;
  hovered = null;
  term = "";

  // `pick(row, column)` is called for a clicked cell, with null for a word; `hover()` after the pointer moved to another cell.
  constructor(root, pick, hover) {
    this.root = root;
    this.name = `lab-map-${maps += 1}`;
    this.plot = root.querySelector(".plot");
    this.over = root.querySelector(".over");
    this.tip = root.querySelector(".tip");
    this.pick = pick;
    this.hover = hover;
    let down = null;
    root.addEventListener("pointerdown", (event) => { down = event; }, true);
    root.addEventListener("pointermove", (event) => this.point(event));
    root.addEventListener("pointerleave", () => this.point(null));
    root.addEventListener("click", (event) => {
      const moved = down ? Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) : 0;
      const cell = moved > DRAG ? null : this.cellAt(event);
      if (cell) this.pick(cell.row, cell.column);
    }, true);
  }

  /** Draws a term: its matrix, strips and colours. */
  build(numbers, term, look, isPhone, isProjected) {
    Object.assign(this, { numbers, term, look, limit: numbers.limit(term) });
    const { sent, keys } = numbers;
    const z = numbers.matrix(term);
    const [rows, columns] = [z.length, z[0].length];
    const { label, axis } = look.size;
    const labelSize = isPhone ? axis : label;
    const [down, across] = sent.terms.find(({ name }) => name === term).block ?? [1, 1];
    const isOutput = term === "collect";
    this.root.style.height = isPhone ? `${Math.min(480, Math.round(this.root.clientWidth * 1.02))}px` : "";
    const { clientWidth: width, clientHeight: available } = this.root;
    const widest = (words) => Math.min(isPhone ? 72 : width * 0.2, Math.max(...words.slice(0, 400).map((word) => look.width(place(word), labelSize, 700))));
    const wordsLeft = Math.ceil(widest(sent.queries)) + (isPhone ? 8 : 12);
    const wordsAbove = isOutput ? labelSize + 10 : Math.ceil(widest(keys) * 0.71 + labelSize * 0.8) + 6;
    const left = strips(numbers, term);
    // Digits for a class need the room of the strips where cells are small.
    const isBare = isProjected && !isOutput && Math.min((width - wordsLeft - 130) / columns, (available - wordsAbove - 70) / rows) < axis * 1.15;
    if (isBare) left.left.rows = left.top.rows = null;
    const stripAbove = left.top.rows ? (isPhone ? 26 : isProjected ? Math.min(60, Math.round(available / 9)) : 46) : 0;
    const gapAbove = stripAbove ? GAP : 0;
    const freeY = available - wordsAbove - stripAbove - gapAbove - 6;
    // Where digits need it, cells are a little wider than high, and the strip of the queries is narrower.
    const widestStrip = left.left.rows ? (isPhone ? 36 : isProjected ? 120 : width < 500 ? 52 : 92) : 0;
    const beside = width - wordsLeft - GAP - 6;
    const room = (look.width(this.widest(), axis, 700) + 3) * columns;
    const hasDigits = !isOutput && room <= Math.min(beside - Math.min(52, widestStrip), (freeY * 1.5 * columns) / rows);
    const stripLeft = hasDigits ? Math.min(widestStrip, beside - room) : widestStrip;
    const gapLeft = stripLeft ? GAP : 0;
    const free = { x: width - wordsLeft - stripLeft - gapLeft - 6, y: freeY };
    // Cells of words are squares; a row of numbers is as wide as the map is.
    const most = Math.max(look.size.word * 3.8, available / 8);
    const square = Math.max(80, Math.min(free.x, free.y * (isOutput ? 1.4 : columns / rows), isOutput ? Infinity : most * columns));
    const tall = isOutput ? Math.min(free.y, rows * most, square) : Math.max(40, Math.min(free.y, square * (rows / columns)));
    const side = hasDigits ? Math.max(square, room) : isBare ? Math.min(free.x, square * 1.5) : square;
    const x0 = wordsLeft + stripLeft + gapLeft;
    const y0 = wordsAbove + stripAbove + gapAbove;
    const height = isPhone ? y0 + tall + 6 : available; // below a small map nothing is left free there
    if (isPhone) this.root.style.height = `${height}px`;
    this.strips = left;
    this.geometry = {
      width, height, x0, y0, side, tall, rows, columns, down, across, wordsLeft, wordsAbove, stripLeft, stripAbove, labelSize, isOutput, isBare,
      cell: { x: side / columns, y: tall / rows }, z,
    };
    return this.react();
  }

  // What is widest of the digits that may stand in a cell.
  widest() {
    const isShare = this.numbers.isShare(this.term);
    return [`${this.numbers.inCell(this.term, isShare ? 1 : -this.limit)}`, isShare ? "" : "−9.9"].sort((a, b) => b.length - a.length)[0];
  }

  async react() {
    const { geometry: g, look, plot, strips: { left, top } } = this;
    const isShare = this.numbers.isShare(this.term);
    const heat = (z, limit, share, axes) => ({
      type: "heatmap", z, zmin: share ? 0 : -limit, zmax: limit, colorscale: look.plotly(share), showscale: false, hoverinfo: "skip", ...axes,
    });
    const data = [heat(g.z, this.limit, isShare, {})];
    if (left.rows) data.push(heat(left.rows, left.limit, Boolean(left.isShare), { xaxis: "x2", yaxis: "y" }));
    if (top.rows) {
      const z = top.across ? top.rows : transposed(top.rows);
      data.push(heat(z, top.limit, false, { xaxis: "x", yaxis: "y2" }));
    }
    const hiddenAxis = { visible: false, fixedrange: true };
    const across = (from, to) => [from / g.width, Math.min(1, to / g.width)];
    const downward = (from, to) => [Math.max(0, 1 - to / g.height), 1 - from / g.height];
    const isFixed = matchMedia("(pointer: coarse)").matches;
    const layout = {
      width: g.width, height: g.height, margin: { l: 0, r: 0, t: 0, b: 0, pad: 0 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      uirevision: `${this.term} ${g.rows} ${g.columns}`, dragmode: isFixed ? false : "zoom", showlegend: false,
      xaxis: { visible: false, fixedrange: isFixed, range: [-0.5, g.columns - 0.5], domain: across(g.x0, g.x0 + g.side) },
      yaxis: { visible: false, fixedrange: isFixed, range: [g.rows - 0.5, -0.5], domain: downward(g.y0, g.y0 + g.tall) },
      xaxis2: { ...hiddenAxis, anchor: "y", domain: across(g.wordsLeft, g.wordsLeft + Math.max(1, g.stripLeft)), range: [-0.5, (left.rows?.[0].length ?? 1) - 0.5] },
      yaxis2: {
        ...hiddenAxis, anchor: "x", domain: downward(g.wordsAbove, g.wordsAbove + Math.max(1, g.stripAbove)),
        range: [((top.across ? top.rows?.length : top.rows?.[0].length) ?? 1) - 0.5, -0.5],
      },
    };
    const Plotly = await loadPlotly();
    if (this.geometry !== g) return;
    const isFirst = !plot.data;
    // Where only numbers are others, Plotly has nothing to lay out.
    const frame = JSON.stringify([layout, data.map(({ z, zmin, zmax, ...heat }) => [heat, z.length, z[0].length])]);
    if (frame === this.frame && data.every((each, i) => repaintCells(plot, each, i))) return;
    this.frame = frame;
    await Plotly.react(plot, data, layout, CONFIG);
    if (isFirst) plot.on("plotly_relayout", () => this.hover());
  }

  /** Draws new numbers of the same map. */
  repaint(numbers) {
    const { geometry: g, look, plot, term } = this;
    const heat = numbers.heat(look, term);
    Object.assign(this, { numbers, limit: heat.zmax });
    g.z = heat.z;
    if (!plot.data || repaintCells(plot, heat)) return;
    window.Plotly.restyle(plot, { z: [heat.z], zmin: heat.zmin, zmax: heat.zmax }, [0]);
  }

  // The edges of a column and of a row in pixels, at the present zoom.
  edges() {
    const { geometry: g, plot } = this;
    const { xaxis, yaxis } = plot._fullLayout ?? {};
    if (!xaxis) return { x: (c) => g.x0 + c * g.cell.x, y: (r) => g.y0 + r * g.cell.y };
    return { x: (c) => xaxis._offset + xaxis.l2p(c - 0.5), y: (r) => yaxis._offset + yaxis.l2p(r - 0.5) };
  }

  // What stands at the position of an event: a row and a column of the map, of its strips, or of its words.
  cellAt(event) {
    const { geometry: g } = this;
    if (!g) return null;
    const box = this.root.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const { x: X, y: Y } = this.edges();
    const at = (edge, position, count) => { for (let i = 0; i < count; i += 1) if (position >= edge(i) && position < edge(i + 1)) return i; return -1; };
    const inside = x >= g.x0 && x < g.x0 + g.side;
    const beside = y >= g.y0 && y < g.y0 + g.tall;
    const row = beside ? at(Y, y, g.rows) : -1;
    // Words above the map lean to the right.
    const lean = !inside && y > g.wordsAbove ? 0 : Math.max(0, g.wordsAbove - y);
    const column = inside || y < g.wordsAbove ? at(X, y < g.wordsAbove ? x - lean : x, g.columns) : -1;
    if (beside && inside) return row >= 0 && column >= 0 ? { row, column, x, y } : null;
    if (beside && x < g.x0) return row >= 0 ? { row, column: null, x, y } : null;
    if (y < g.y0 && column >= 0 && !(g.isOutput && y < g.wordsAbove)) return { row: null, column, x, y };
    return null;
  }

  point(event) {
    const cell = event && event.pointerType !== "touch" ? this.cellAt(event) : null;
    const key = cell && `${cell.row} ${cell.column}`;
    if (key === this.hoveredKey && !cell) return;
    const changed = key !== this.hoveredKey;
    Object.assign(this, { hovered: cell, hoveredKey: key });
    this.showTip();
    if (changed) this.hover();
  }

  // What made the number under the pointer.
  showTip() {
    const { hovered: cell, geometry: g, numbers, tip, term } = this;
    tip.hidden = !cell;
    if (!cell) return;
    const { keys, sent: { queries } } = numbers;
    const [row, column] = cell.row === null || cell.column === null || g.isOutput && g.down === 1
      ? [cell.row, cell.column] : numbers.cellOfBlock(term, cell.row, cell.column);
    const quoted = (text) => `“<bdi>${escape(text)}</bdi>”`;
    const block = g.down * g.across > 1 ? `<small>largest of ${g.down} × ${g.across}</small>` : "";
    tip.innerHTML = (() => {
      if (row === null) return g.isOutput ? `number ${column} of every value` : `${quoted(keys[column * g.across])} as key`;
      if (column === null) return `${quoted(queries[row * g.down])} as query<small>click to choose it</small>`;
      const x = g.z[cell.row][cell.column];
      if (g.isOutput && numbers.isDifference) return `<b>${signed(said(x))}</b> ${quoted(queries[row])}, number ${column}<small>B − A</small>`;
      if (g.isOutput) return `<b>${said(x)}</b> new ${quoted(queries[row])}, number ${column}<small>${numbers.m} shares × values, added up</small>`;
      const pair = `${quoted(queries[row])} → ${quoted(keys[column])}`;
      const isEdited = this.root.closest(".masking");
      if (isEdited) return `<b>${numbers.sees(row, column) ? said(x) : "hidden"}</b> ${pair}<small>click to ${numbers.sees(row, column) ? "hide" : "show"} it</small>`;
      if (Number.isNaN(x)) return `<b>hidden</b> ${pair}<small>by the mask</small>`;
      const of = (name) => numbers.row(name, row)?.[column];
      if (numbers.isDifference) return `<b>${signed(said(x))}</b> ${pair}<small>B − A</small>`;
      const because = {
        match: () => `${numbers.vector("query", row)?.length ?? "all"} products, added up`,
        scale: () => (of("match") === undefined ? "" : `from ${said(of("match"))}`),
        hide: () => "in sight: nothing added",
        share: () => { const score = of("hide") ?? of("scale") ?? of("match"); return score === undefined ? "" : `e^${said(score)}, as part of its row`; },
      }[term]();
      const softmax = numbers.formula.normalizer === "softmax" || term !== "share";
      return `<b>${said(x)}</b> ${pair}<small>${softmax ? because : numbers.formula.normalizer}</small>`;
    })() + block;
    const [w, h] = [tip.offsetWidth, tip.offsetHeight];
    const left = cell.x + 16 + w > g.width ? cell.x - w - 16 : cell.x + 16;
    Object.assign(tip.style, { left: `${Math.max(0, left)}px`, top: `${cell.y - h - 12 < 0 ? cell.y + 20 : cell.y - h - 12}px` });
  }

  /** Draws what lies over the map at a moment: `scene`, its part `p` from 0 to 1, and the chosen query, key and number of the output. */
  paint({ scene, p, q, k, column }) {
    const { geometry: g, look, numbers, over } = this;
    if (!g) return;
    const { x: X, y: Y } = this.edges();
    const [row, col] = [Math.floor(q / g.down), g.isOutput ? column : Math.floor(k / g.across)];
    const few = g.down === 1 && g.across === 1;
    const size = { x: X(1) - X(0), y: Y(1) - Y(0) };
    const parts = [];
    const rect = (x, y, width, height, style) => parts.push(`<rect x="${x.toFixed(1)}" y="${y.toFixed(1)}" width="${Math.max(0, width).toFixed(1)}" height="${Math.max(0, height).toFixed(1)}" ${style}/>`);
    const words = (x, y, text, style, attributes = "") => parts.push(`<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" style="${style}" ${attributes}>${text}</text>`);
    const color = (role) => css(look[role]);
    const ground = color("ground");
    const film = p < 1;
    // Layers, of which only those that change are written.
    const [defs, cells, digits, labels, frames] = this.layers();
    const put = (layer) => write(layer, parts.splice(0).join(""));
    parts.push(`<clipPath id="${this.name}-clip"><rect x="${g.x0}" y="${g.y0}" width="${g.side}" height="${g.tall}"/></clipPath>`);
    // Cells are rounded by what stands between them, in the colour of the ground.
    const isRounded = few && !g.isOutput && Math.min(size.x, size.y) >= 10;
    if (isRounded) {
      const r = Math.min(5, size.x * 0.13);
      const inner = `M${1 + r} 1H${size.x - 1 - r}a${r} ${r} 0 0 1 ${r} ${r}V${size.y - 1 - r}a${r} ${r} 0 0 1 ${-r} ${r}H${1 + r}a${r} ${r} 0 0 1 ${-r} ${-r}V${1 + r}a${r} ${r} 0 0 1 ${r} ${-r}Z`;
      parts.push(`<pattern id="${this.name}-cells" patternUnits="userSpaceOnUse" x="${X(0)}" y="${Y(0)}" width="${size.x}" height="${size.y}"><path fill-rule="evenodd" fill="${ground}" d="M0 0H${size.x}V${size.y}H0Z${inner}"/></pattern>`);
    }
    put(defs);
    // What the film has not reached yet in the chosen row, and what the mask hides.
    const cover = (r, c) => rect(X(c) - 0.3, Y(r) - 0.3, size.x + 0.6, size.y + 0.6, `fill="${ground}"`);
    const matrixRow = few ? g.z[row] : null;
    const reveal = ease(0.8, 1, p);
    const wipe = scene === "hide" ? ease(0.35, 0.92, p) : 1;
    const blend = scene === "share" ? ease(0.1, 0.9, p) : 1;
    const visible = (c) => {
      if (!film) return true;
      if (scene === "match") return c === k ? p > 0.93 : reveal > (c + 1) / (g.columns + 1);
      if (scene === "collect") return c < g.columns * ease(0.5, 0.95, p);
      return true;
    };
    const scaled = numbers.has("scale") ? numbers.row("scale", q) : numbers.row("match", q);
    const fills = new Map();
    if (few && film) {
      for (let c = 0; c < g.columns; c += 1) {
        if (!visible(c)) rect(X(c), Y(row), size.x, size.y, `fill="${color("zero")}"`);
        else if (scene === "share" && scaled && numbers.sees(q, c)) {
          const name = numbers.has("scale") ? "scale" : "match";
          fills.set(c, mix(look.signed(scaled[c], numbers.limit(name)), look.share(matrixRow[c]), blend));
          rect(X(c), Y(row), size.x, size.y, `fill="${css(fills.get(c))}"`);
        }
      }
    }
    const isGone = (r, c) => (numbers.isDifference ? Number.isNaN(g.z[r][c]) : !numbers.sees(r, c));
    if (few && !g.isOutput && (scene === "hide" || scene === "share")) {
      const dot = Math.max(1.4, size.x * 0.055);
      for (let r = 0; r < g.rows; r += 1) {
        for (let c = 0; c < g.columns; c += 1) {
          if (!isGone(r, c) || (c + 0.5) / g.columns <= 1 - wipe) continue;
          cover(r, c);
          parts.push(`<circle cx="${X(c) + size.x / 2}" cy="${Y(r) + size.y / 2}" r="${dot.toFixed(1)}" fill="${color("dot")}"/>`);
        }
      }
    }
    if (isRounded) parts.push(`<rect x="${g.x0}" y="${g.y0}" width="${g.side}" height="${g.tall}" fill="url(#${this.name}-cells)"/>`);
    put(cells);
    // Digits of the chosen row, and of the one under the pointer.
    let tall = size.y;
    const hovered = this.hovered?.row ?? null;
    for (const r of few && !g.isOutput ? new Set([row, hovered]) : []) {
      if (r === null) continue;
      const isHidden = (c) => Number.isNaN(g.z[r][c]) || ((scene === "hide" || scene === "share") && isGone(r, c));
      const texts = Array.from(g.z[r], (x, c) => (isHidden(c) ? "" : `${numbers.inCell(scene, x)}`));
      let height = digitSize(size, texts, look);
      if (!height && g.isBare && r === row && areApart(texts, size.x, look.size.axis, look)) {
        // The chosen row stands out, as high as its digits.
        height = look.size.axis;
        tall = height * 1.25;
        for (const c of texts.keys()) {
          if (!isHidden(c) && visible(c)) rect(X(c), Y(row) + (size.y - tall) / 2, size.x, tall, `fill="${css(fills.get(c) ?? numbers.color(look, scene, g.z[r][c]))}" stroke="${ground}" stroke-width="2"`);
        }
      }
      for (let c = 0; height && c < g.columns; c += 1) {
        const x = g.z[r][c];
        if (Number.isNaN(x) || (isHidden(c) && (c + 0.5) / g.columns > 1 - wipe) || (r === row && !visible(c))) continue;
        const moving = scene === "scale" && film && r === row ? between(numbers.row("match", q)?.[c] ?? x, x, ease(0.28, 0.9, p)) : x;
        const fill = (r === row && fills.get(c)) || numbers.color(look, scene, moving);
        words(X(c) + size.x / 2, Y(r) + size.y / 2, numbers.inCell(scene, moving), `opacity:${r === row ? blend : 1};fill:${look.on(fill)};font-size:${height}px;font-weight:${c === col && r === row ? 700 : 400}`, `dy=".35em" text-anchor="middle"`);
      }
    }
    put(digits);
    this.paintWords({ parts, q, k, row, col, hovered, X, Y, size, words, color });
    put(labels);
    this.paintFrames({ row, col, k, X, Y, size, tall, rect, color });
    put(frames);
    over.setAttribute("viewBox", `0 0 ${g.width} ${g.height}`);
  }

  layers() {
    if (!this.over.firstChild) {
      const clip = `clip-path="url(#${this.name}-clip)"`;
      this.over.innerHTML = `<defs></defs><g class="cells" ${clip}></g><g class="digits" ${clip}></g><g class="words"></g><g class="frames"></g>`;
    }
    return this.over.children;
  }

  // The words beside and above the map, as many as fit; the bar of colours; what the strips are.
  paintWords({ parts, q, k, row, col, hovered, X, Y, size, words, color }) {
    const { geometry: g, look, numbers, strips: { left, top } } = this;
    const { keys, sent: { queries } } = numbers;
    const { axis, label } = look.size;
    const stride = (room) => Math.max(1, Math.ceil((g.labelSize * 1.15) / room));
    const inY = (y) => y > g.y0 && y < g.y0 + g.tall;
    const inX = (x) => x > g.x0 && x < g.x0 + g.side;
    const shorten = (text, room) => { let t = text; while (t.length > 1 && look.width(t, g.labelSize, 700) > room) t = `${t.slice(0, -2)}…`; return t; };
    const every = stride(size.y);
    for (let r = 0; r < g.rows; r += 1) {
      const y = Y(r) + size.y / 2;
      const mine = r === row;
      const over = r === hovered;
      if (!inY(y) || (!mine && !over && (r % every || Math.abs(r - row) < every))) continue;
      const text = shorten(place(queries[mine ? q : r * g.down] ?? ""), g.wordsLeft - 8);
      words(g.wordsLeft - 8, y, escape(text), `fill:${color(mine ? "query" : over ? "ink" : "soft")};font-size:${g.labelSize}px;font-weight:${mine || over ? 700 : 400}`, `dy=".34em" text-anchor="end"`);
    }
    if (!g.isOutput) {
      const everyX = stride(size.x);
      const hoveredColumn = this.hovered?.column ?? null;
      for (let c = 0; c < g.columns; c += 1) {
        const x = X(c) + size.x / 2;
        const mine = c === col;
        const over = c === hoveredColumn;
        if (!inX(x) || (!mine && !over && (c % everyX || Math.abs(c - col) < everyX))) continue;
        const text = shorten(place(keys[mine ? k : c * g.across] ?? ""), Math.min(g.wordsAbove, g.width - x) / 0.71 - g.labelSize * 1.1);
        words(0, 0, escape(text), `fill:${color(mine ? "key" : over ? "ink" : "soft")};font-size:${g.labelSize}px;font-weight:${mine || over ? 700 : 400}`, `transform="translate(${(x + 2).toFixed(1)},${g.wordsAbove - 6}) rotate(-45)"`);
      }
    } else {
      words(g.x0, g.wordsAbove - 8, `number ${col} of ${g.columns}`, `fill:${color("soft")};font-size:${g.labelSize}px`);
    }
    const name = ({ role, symbol, isTurned, does }, x, y, anchor) => {
      const turned = isTurned ? `<tspan style="font-style:normal;font-size:${axis}px" dy="-.45em">T</tspan>` : "";
      const back = isTurned ? `<tspan dy="${(axis * 0.45) / label}em" style="font-style:normal">` : "<tspan style=\"font-style:normal\">";
      words(x, y, `${symbol}${turned}${back} ${does}</tspan>`, `fill:${color(role)};font-size:${label}px;font-style:italic`, `text-anchor="${anchor}"`);
    };
    if (top.rows) name(top, g.x0 - GAP - 1, g.wordsAbove + g.stripAbove / 2, "end");
    if (left.rows) name(left, g.wordsLeft + (g.stripLeft < 80 ? g.stripLeft : 0), g.y0 - 7, g.stripLeft < 80 ? "end" : "start");
    // The bar of colours, with its ends.
    const share = numbers.isShare(this.term);
    const [x, width] = g.stripLeft < 80 ? [2, g.wordsLeft + g.stripLeft - 6] : [g.wordsLeft, g.stripLeft];
    const end = (x) => (!numbers.isDifference ? said(x) : this.term === "share" ? points(x) : signed(said(x)));
    const ends = share ? ["0", this.limit === 1 ? "100\u00a0%" : said(this.limit)] : [end(-this.limit), end(this.limit)];
    if (g.wordsAbove > axis * 2 + 8 && width > look.width(ends.join(""), axis)) {
      const stops = look.plotly(share).map(([at, stop]) => `<stop offset="${at}" stop-color="${stop}"/>`).join("");
      parts.push(`<linearGradient id="${this.name}-bar">${stops}</linearGradient><rect x="${x}" y="2" width="${width}" height="8" rx="4" fill="url(#${this.name}-bar)" stroke="${color("line")}"/>`);
      words(x, 12 + axis, ends[0], `fill:${color("soft")};font-size:${axis}px`);
      words(x + width, 12 + axis, ends[1], `fill:${color("soft")};font-size:${axis}px`, `text-anchor="end"`);
    }
  }

  // One outline for what is chosen: its row, its column, and the cell where they meet; a dashed one for what is under the pointer.
  paintFrames({ row, col, k, X, Y, size, tall, rect, color }) {
    const { geometry: g, hovered } = this;
    const thick = g.labelSize > 20 ? 4 : 2.5;
    const [x, y] = [X(col), Y(row) + (size.y - tall) / 2];
    const inside = { x: x + size.x > g.x0 - 1 && x < g.x0 + g.side, y: y + size.y > g.y0 - 1 && y < g.y0 + g.tall };
    const column = g.isOutput ? "value" : "key";
    if (g.isOutput && g.stripAbove && g.stripLeft && this.strips.top.rows?.length === this.numbers.m) {
      const [each, beside] = [g.stripAbove / this.numbers.m, g.stripLeft / this.numbers.m];
      rect(g.x0 - 2, g.wordsAbove + k * each - 1, g.side + 4, each + 2, `rx="2" fill="none" stroke="${color("key")}" stroke-width="1.5"`);
      rect(g.wordsLeft + k * beside - 1, y, beside + 2, size.y, `rx="2" fill="none" stroke="${color("key")}" stroke-width="1.5"`);
    }
    if (inside.x) rect(x - 1, g.wordsAbove - 1, size.x + 2, g.y0 + g.tall - g.wordsAbove + 2, `rx="5" fill="none" stroke="${color(column)}" stroke-width="${thick}"`);
    if (inside.y) rect(g.wordsLeft - 1, y - 1, g.x0 + g.side - g.wordsLeft + 2, tall + 2, `rx="5" fill="none" stroke="${color("query")}" stroke-width="${thick}"`);
    if (inside.x && inside.y) {
      const out = g.isOutput ? 2 : 1;
      rect(x - out, y - 1, size.x + 2 * out, tall + 2, `rx="5" fill="none" stroke="${color("ink")}" stroke-width="${thick + 1.5}"`);
      // Ink alone is weak on the fullest colours: a line in the colour of the ground parts them.
      const edge = thick / 2 + 1.5;
      if (Math.min(size.x, size.y) > 12) rect(x - out + edge, y - 1 + edge, size.x + 2 * (out - edge), tall + 2 - 2 * edge, `rx="3" fill="none" stroke="${color("ground")}" stroke-width="1.5"`);
    }
    const dashed = `rx="4" fill="none" stroke="${color("ink")}" stroke-width="1.25" stroke-dasharray="3 3"`;
    if (hovered && hovered.row !== null) rect(g.wordsLeft - 1, Y(hovered.row), g.x0 + g.side - g.wordsLeft + 2, size.y, dashed);
    if (hovered && hovered.column !== null) rect(X(hovered.column), g.wordsAbove - 1, size.x, g.y0 + g.tall - g.wordsAbove + 2, dashed);
  }

  /** Where things lie on the page, for what flies between the map and the stage: a query's or value's strip, a key's, a cell. */
  places() {
    const { geometry: g } = this;
    const { x: X, y: Y } = this.edges();
    const box = this.root.getBoundingClientRect();
    const on = (x, y, width, height) => [box.left + x, box.top + y, width, height];
    return {
      query: (q, i, count) => on(g.wordsLeft + (i * g.stripLeft) / count, Y(q) + 1, g.stripLeft / count, Y(q + 1) - Y(q) - 2),
      key: (k, i, count) => on(X(k) + 1, g.wordsAbove + (i * g.stripAbove) / count, X(k + 1) - X(k) - 2, g.stripAbove / count),
      value: (k, i, count, all) => on(g.x0 + (i * g.side) / count, g.wordsAbove + (k * g.stripAbove) / all, g.side / count, g.stripAbove / all),
      cell: (q, k) => on(X(k), Y(q), X(k + 1) - X(k), Y(q + 1) - Y(q)),
    };
  }
}
