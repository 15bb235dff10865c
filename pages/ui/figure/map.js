// One map on the screen: its theme, what is drawn of it at this zoom, and which cell stands under the pointer.

import { inked, repaint } from "./cells.js";
import { apart, unzoomed, widen } from "./columns.js";
import { MOST_CELLS, clipped } from "./live.js";

const CONFIG = { displaylogo: false, responsive: false, showSendToCloud: false, scrollZoom: false, typesetMath: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
const SMALLEST_TEXT = { width: 23, height: 13 }; // pixels of a cell below which its number would be unreadable

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
export function fitTexts(element) {
  const all = element.figure.data[0].texttemplate;
  if (!all) return;
  const wanted = readable(element, { ...element.figure.layout, xaxis: element._fullLayout.xaxis, yaxis: element._fullLayout.yaxis }) ? all : "";
  if ((element.data[0].texttemplate ?? "") === wanted) return;
  element.drawn = null;
  window.Plotly.restyle(element, { texttemplate: wanted }, [0]);
}

// A map that the page makes: what is to be drawn of it between the two ranges of the axes.
function filled(figure, exact, xRange, yRange) {
  const [heat] = figure.data, view = exact.view(heat.live, yRange, xRange);
  const place = { x0: view.x0, dx: view.dx, y0: view.y0, dy: view.dy };
  // Python's own numbers, where it sent them, as long as no hand has turned anything.
  const data = [{ ...heat, ...place, ...exact.colors(heat), z: heat.z && !exact.turned ? heat.z : view.z }];
  if (view.ground) data.push({ ...figure.layout.meta.ground, ...place, z: view.ground });
  data.push(...figure.data.slice(1).filter(({ type }) => type !== "heatmap")); // what has the colour bar
  return { data, view };
}

// Titles the map with what is so now: which block a cell stands for.
function noted(layout, view) {
  if (!view || view.block === 1) return layout;
  const { title } = layout, facts = `${title.subtitle.text} · each cell the largest of ${view.block} × ${view.block}`;
  return { ...layout, title: { ...title, subtitle: { ...title.subtitle, text: facts } } };
}

// All of a figure but the cells of its first trace, as texts to compare; apart, what their columns bring with them.
function frameOf(data, layout) {
  const [{ z, zmin, zmax, colorbar, live, x0, dx, y0, dy, ...heat }, ...more] = data, { meta, ...shown } = layout, [rest, across] = apart(shown);
  const length = (_, value) => (ArrayBuffer.isView(value) ? value.length : value);
  return { frame: JSON.stringify([heat, more.map(({ z: _, ...one }) => one), rest], length), across: JSON.stringify(across) };
}

const sameRows = (one, other) => one.length === other.length && one.every((row, i) => row.length === other[i].length && row.every((cell, k) => Object.is(cell, other[i][k])));
const sameGround = (one, other) => one === other || (Boolean(one) && Boolean(other) && sameRows(one, other));

export async function paint(element, root) {
  const { figure } = element, shown = element._fullLayout;
  let { data } = figure, layout = themed(figure.layout, root);
  // What is on the screen: the zoom stays (Plotly keeps it itself, by uirevision) where it is a map of the same size.
  const zoomed = element.data && shown.uirevision === layout.uirevision;
  const seen = { ...layout, xaxis: zoomed ? shown.xaxis : layout.xaxis, yaxis: zoomed ? shown.yaxis : layout.yaxis };
  element.view = null;
  if (data[0].live && root.exact.knows(data[0].live)) {
    const made = filled(figure, root.exact, seen.xaxis.range, seen.yaxis.range);
    element.view = made.view;
    data = made.data;
    layout = noted(layout, made.view);
  }
  const more = data[0].texttemplate && !readable(element, seen) ? { texttemplate: "" } : {};
  // Where a cell is a block, `tell` says which cell of it is shown.
  if (element.view?.block > 1 || figure.layout.meta.at) Object.assign(more, { hoverinfo: "none", hovertemplate: undefined });
  data = [{ ...data[0], ...more }, ...data.slice(1)];
  const drawn = { ...frameOf(data, layout), ground: data[1]?.z, width: element.clientWidth };
  const before = element.drawn;
  element.drawn = drawn;
  const cellsOnly = data[0].type === "heatmap" && before?.frame === drawn.frame && before.width === drawn.width && sameGround(before.ground, drawn.ground);
  if (cellsOnly && (before.across === drawn.across || widen(element, layout)) && repaint(element, data[0])) return;
  const drawing = window.Plotly.react(element, data, layout, CONFIG);
  if (!before) element.on("plotly_afterplot", () => inked(element));
  await drawing;
  inked(element);
  for (const axis of ["xaxis", "yaxis"]) if (layout[axis]?.range) unzoomed(element._fullLayout[axis], layout[axis].range);
}

// After a zoom: the same map, cut anew, here or by Python. Blocks become smaller until a cell is one number again.
export function cutAnew(element, root, send) {
  const { xaxis, yaxis } = element._fullLayout, { blocks, panels } = element.figure.layout.meta;
  if (blocks) {
    const wanted = [...clipped(yaxis.range, panels[0].rows), ...clipped(xaxis.range, panels[0].columns)];
    if (String(wanted) === String(blocks.window)) element.asked = null;
    else if (element.asked !== String(wanted)) {
      element.asked = String(wanted);
      send("cut", { map: element.figure.layout.uirevision, window: wanted });
    }
    return;
  }
  if (!element.view || Math.max(root.exact.rows, root.exact.columnsOf(element.figure.data[0].live)) <= MOST_CELLS) return;
  const key = String([xaxis.range, yaxis.range]);
  if (element.cut === key) return;
  element.cut = key;
  paint(element, root);
}

// The cell whose number is drawn at a point, and how large the block is that it stands for.
export function cellUnder(element, root, { x, y, z }) {
  const { blocks, at, panels } = element.figure.layout.meta, { view } = element;
  if (view?.block > 1) return { ...root.exact.cellAt(element.figure.data[0].live, view, x, y), block: `${view.block} × ${view.block}` };
  if (!at) return { x, y, z };
  if (blocks) {
    const { down, across, top, left } = blocks, row = Math.floor((y - top) / down), column = Math.floor((x - left) / across), place = at[row][column];
    return { x: left + column * across + (place % across), y: top + row * down + Math.floor(place / across), z, block: `${down} × ${across}` };
  }
  const { block, head, ...panel } = panels.find((one) => x >= one.x && x < one.x + one.columns && y >= one.y && y < one.y + one.rows), place = at[y][x];
  return { x: (x - panel.x) * block + (place % block), y: (y - panel.y) * block + Math.floor(place / block), z, head, block: `${block} × ${block}` };
}
