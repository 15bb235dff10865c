// Hands figures to Plotly in the page, updates them in place, and tells Python which cell was clicked.
//
// Python sends bytes: the length of a JSON header (uint32), the header, then the arrays it points to.
// A figure is never rebuilt: Plotly.react into the same element keeps the zoom (layout.uirevision).

import { installed } from "./history.js";
import { controls } from "./hand.js";
import { Exact, MOST_CELLS } from "./live.js";

console.assert(installed);
const ARRAYS = { f4: Float32Array, f8: Float64Array, u1: Uint8Array, i1: Int8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array };
const SMALLEST_TEXT = { width: 23, height: 13 }; // pixels of a cell below which its number would be unreadable

let plotly; // one promise for the page: Plotly's script is loaded once

function loadPlotly(url) {
  plotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => { plotly = undefined; reject(new Error("Plotly's script did not load")); };
    document.head.append(script);
  });
  return plotly;
}

export function unpack(bytes) {
  const buffer = bytes.slice().buffer; // a copy starts at 0, so that typed arrays are aligned
  const headerSize = new DataView(buffer).getUint32(0, true);
  const start = 4 + headerSize;
  const revive = (_, value) => {
    if (!value || !value.array) return value;
    const { dtype, at, shape } = value.array;
    const size = shape.reduce((product, n) => product * n, 1);
    const flat = new ARRAYS[dtype](buffer, start + at, size);
    if (shape.length === 1) return flat;
    return Array.from({ length: shape[0] }, (__, row) => flat.subarray(row * shape[1], (row + 1) * shape[1]));
  };
  return JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, headerSize)), revive);
}

function themed(layout, root) {
  const style = getComputedStyle(root);
  const color = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
  const text = color("--st-text-color", "#31333f");
  const ground = color("--st-background-color", "#ffffff");
  const font = { family: color("--st-font", "sans-serif"), color: text };
  // On a tick, Plotly's hover repeats the tick's short text; a hair beside it, it says the position and the whole token.
  // Lines and bars have no such texts, and their ticks stay where they are.
  const shifted = ({ tickvals, range }) => tickvals.map((place) => place + 2e-4 * Math.abs(range[1] - range[0]));
  const aside = (axis) => (axis?.labelalias && axis.tickvals && axis.range ? { tickvals: shifted(axis) } : {});
  const touch = matchMedia("(pointer: coarse)").matches; // a finger scrolls the page; it does not zoom a map
  return {
    ...layout,
    font: { ...layout.font, ...font },
    hoverlabel: { bgcolor: ground, bordercolor: text, font: { ...font, size: 12 }, align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: color("--st-border-color", "#888"), activecolor: text },
    xaxis: { ...layout.xaxis, ...aside(layout.xaxis), fixedrange: touch },
    yaxis: { ...layout.yaxis, ...aside(layout.yaxis), fixedrange: touch },
    dragmode: touch ? false : "zoom",
  };
}

// Numbers in the cells only where a cell is large enough to read them, at this width and this zoom.
function readable(element, layout) {
  const { margin, xaxis, yaxis } = layout, pixels = (length, { range }) => length / Math.abs(range[1] - range[0]);
  return pixels(element.clientWidth - margin.l - margin.r, xaxis) >= SMALLEST_TEXT.width && pixels(layout.height - margin.t - margin.b, yaxis) >= SMALLEST_TEXT.height;
}

// After a zoom or another width; before a figure is painted, `paint` decides it, so that nothing is painted twice.
function fitTexts(element) {
  const all = element.figure.data[0].texttemplate;
  if (!all) return;
  const wanted = readable(element, { ...element.figure.layout, xaxis: element._fullLayout.xaxis, yaxis: element._fullLayout.yaxis }) ? all : "";
  if ((element.data[0].texttemplate ?? "") !== wanted) window.Plotly.restyle(element, { texttemplate: wanted }, [0]);
}

// A map that Python sent without its numbers: what is to be drawn of it between the two ranges of the axes.
function filled(figure, exact, xRange, yRange) {
  const [heat] = figure.data, view = exact.view(heat.live, yRange, xRange);
  const place = { x0: view.x0, dx: view.dx, y0: view.y0, dy: view.dy };
  const data = [{ ...heat, ...place, z: view.z, hoverinfo: view.block > 1 ? "none" : undefined }];
  if (view.block > 1) data[0].hovertemplate = undefined;
  if (view.ground) data.push({ ...figure.layout.meta.ground, ...place, z: view.ground });
  return { data, view };
}

// Titles the map with what is so now: which block a cell stands for.
function noted(layout, view) {
  if (!view || view.block === 1) return layout;
  const { title } = layout, facts = `${title.subtitle.text} · each cell the largest of ${view.block} × ${view.block}`;
  return { ...layout, title: { ...title, subtitle: { ...title.subtitle, text: facts } } };
}

async function paint(element, root) {
  const { figure } = element, shown = element._fullLayout;
  let { data } = figure, layout = themed(figure.layout, root);
  // What is on the screen: the zoom stays (Plotly keeps it itself, by uirevision) where it is a map of the same size.
  const zoomed = element.data && shown.uirevision === layout.uirevision;
  const seen = { ...layout, xaxis: zoomed ? shown.xaxis : layout.xaxis, yaxis: zoomed ? shown.yaxis : layout.yaxis };
  element.view = null;
  // Python's own numbers, where it sent them, as long as no hand has turned anything.
  if (data[0].live && root.exact.knows(data[0].live) && (root.exact.turned || !data[0].z)) {
    const made = filled(figure, root.exact, seen.xaxis.range, seen.yaxis.range);
    element.view = made.view;
    data = made.data;
    layout = noted(layout, made.view);
  }
  if (data[0].texttemplate && !readable(element, seen)) data = [{ ...data[0], texttemplate: "" }, ...data.slice(1)];
  await window.Plotly.react(element, data, layout, figure.config);
}

// After a zoom: the same map, cut anew. Blocks become smaller until a cell is one number again.
function cutAnew(element, root) {
  if (!element.view || Math.max(root.exact.rows, root.exact.columnsOf(element.figure.data[0].live)) <= MOST_CELLS) return;
  const { xaxis, yaxis } = element._fullLayout, key = String([xaxis.range, yaxis.range]);
  if (element.cut === key) return;
  element.cut = key;
  paint(element, root);
}

// Where the block under the pointer has its largest number, said as a hover says it.
function tell(element, root, point) {
  if (!element.view || element.view.block === 1) return;
  const { x, y, z } = root.exact.cellAt(element.figure.data[0].live, element.view, point.x, point.y);
  const { xaxis, yaxis } = element.figure.layout, name = (axis, i) => axis.labelalias?.[i] ?? i;
  const number = Number.isFinite(z) ? Number(z.toPrecision(9)) : "hidden by the mask";
  element.tip.innerHTML = `largest of ${element.view.block} × ${element.view.block}<br>query ${name(yaxis, y)}<br>key ${name(xaxis, x)}<br><b>${number}</b>`;
  element.tip.hidden = false;
}

async function draw(element, figure, root, send) {
  element.style.height = `${figure.layout.height}px`; // before Plotly paints, so that nothing jumps
  element.setAttribute("role", "figure");
  element.setAttribute("aria-label", figure.layout.meta.alt);
  element.figure = figure;
  const first = !element.data;
  await paint(element, root);
  if (!first) return;
  element.tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  element.append(element.tip);
  element.on("plotly_click", ({ points }) => {
    if (!element.figure.layout.meta.panels.length) return;
    const { x, y } = element.view?.block > 1 ? root.exact.cellAt(element.figure.data[0].live, element.view, points[0].x, points[0].y) : points[0];
    send({ x: Math.round(x), y: Math.round(y), step: element.figure.layout.meta.step, at: Date.now() });
  });
  element.on("plotly_hover", ({ points }) => tell(element, root, points[0]));
  element.on("plotly_unhover", () => { element.tip.hidden = true; });
  element.on("plotly_relayout", () => { fitTexts(element); cutAnew(element, root); });
  element.resizes = new ResizeObserver(() => {
    if (element.clientWidth && element.clientWidth !== element._fullLayout.width) window.Plotly.Plots.resize(element).then(() => fitTexts(element));
  });
  element.resizes.observe(element);
}

// While a hand turns a knob: one frame, and never two at a time.
async function follow(root, turned) {
  root.exact.turn(turned);
  if (root.painting) { root.waiting = true; return; }
  root.painting = true;
  do {
    root.waiting = false;
    await new Promise(requestAnimationFrame);
    for (const element of root.children) {
      const step = element.figure.data[0].live;
      if (step && root.exact.knows(step) && (step !== "scores" || "head" in turned)) await paint(element, root);
    }
    root.frames = (root.frames ?? 0) + 1;
  } while (root.waiting);
  root.painting = false;
}

export default function render({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".figures");
  const { plotly: url, figures, live, hand } = unpack(data);
  while (root.children.length < figures.length) root.append(document.createElement("div"));
  while (root.children.length > figures.length) {
    const last = root.lastElementChild;
    last.resizes?.disconnect();
    if (last.data) window.Plotly.purge(last);
    last.remove();
  }
  figures.forEach((figure, i) => { root.children[i].style.minHeight = `${figure.layout.height}px`; });
  root.figures = figures;
  root.exact = live ? new Exact(live, root.exact) : null;
  controls(parentElement.querySelector(".hand"), hand, {
    follow: (turned) => root.exact && follow(root, turned),
    release: (knob) => setTriggerValue("knob", { ...knob, at: Date.now() }),
  });
  loadPlotly(url).then(async () => {
    for (const [i, figure] of figures.entries()) {
      if (root.figures !== figures) return; // a newer message has come in the meantime
      await draw(root.children[i], figure, root, (cell) => setTriggerValue("cell", cell));
    }
    root.painted = figures;
  }).catch((error) => { root.textContent = `The picture could not be drawn: ${error.message}. The table below has the numbers; reload the page to try again.`; });
}
