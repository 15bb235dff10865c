// One map on the screen: its theme, what is drawn of it at this zoom, and which cell stands under the pointer.

import { inked, repaint } from "./cells.js";
import { MOST_CELLS, clipped } from "./live.js";
import { lines, ticked } from "./words.js";

const CONFIG = { displaylogo: false, responsive: false, showSendToCloud: false, scrollZoom: false, typesetMath: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
const SMALLEST_TEXT = { signed: 23, share: 20, height: 13 }; // pixels of a cell below which its number, with or without a sign, would be unreadable
const AXES = [["xaxis", 1, "columns"], ["yaxis", 0, "rows"]];
const SUBTITLE = { line: 14, edge: 6, free: 2 }; // pixels of a line, beside it, and that are free above the title

function themed(layout, root) {
  const style = getComputedStyle(root);
  const color = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
  const text = color("--st-text-color", "#31333f");
  const ground = color("--st-background-color", "#ffffff");
  const font = { family: color("--st-font", "sans-serif"), color: text };
  const touch = matchMedia("(pointer: coarse)").matches; // a finger scrolls the page; it does not zoom a map
  return {
    ...layout,
    font: { ...layout.font, ...font },
    hoverlabel: { bgcolor: ground, bordercolor: text, font: { ...font, size: 12 }, align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: color("--st-border-color", "#888"), activecolor: text },
    xaxis: { ...layout.xaxis, fixedrange: touch },
    yaxis: { ...layout.yaxis, fixedrange: touch },
    dragmode: touch ? false : "zoom",
  };
}

// What an axis is known by: maps of one component that have the same axis, by name and size, zoom along on it.
function axisOf({ layout: { meta, uirevision } }, axis) {
  const [, i, sizes] = AXES.find(([name]) => name === axis);
  return meta.axes && meta.panels.length === 1 ? `${meta.axes[i]} ${meta.panels[0][sizes]}` : `${uirevision} ${axis}`;
}

// What is seen of an axis: all of it, or what somebody has zoomed to.
function seenOf(root, figure, axis) {
  const { range } = figure.layout[axis], zoom = root.zooms?.get(axisOf(figure, axis));
  return zoom ? (range[0] < range[1] ? zoom : [...zoom].reverse()) : range;
}

// Zooms that no map has an axis for any more are forgotten.
export function keepZooms(root) {
  const there = new Set(root.figures.filter(({ layout }) => layout.meta.panels.length).flatMap((figure) => AXES.map(([axis]) => axisOf(figure, axis))));
  root.zooms = new Map([...(root.zooms ?? [])].filter(([axis]) => there.has(axis)));
}

// The pixels between the margins of a map.
const along = (element, { height, margin }) => ({ xaxis: element.clientWidth - margin.l - margin.r, yaxis: height - margin.t - margin.b });

// Numbers in the cells only where a cell is large enough to read them, at this width and this zoom; maps of the same
// rows and columns have them together, as weights and the scores they are made of.
function readable(root, figure) {
  const own = figure.layout.meta.panels[0];
  return root.figures.every(({ data: [heat], layout }, i) => {
    const [panel] = layout.meta.panels;
    if (!heat.texttemplate || panel.rows !== own.rows || panel.columns !== own.columns) return true;
    const pixels = along(root.children[i], layout), cell = (axis) => pixels[axis] / Math.abs(seenOf(root, { layout }, axis)[1] - seenOf(root, { layout }, axis)[0]);
    const larger = (heat.textfont?.size ?? 10) / 10;
    return cell("xaxis") >= larger * SMALLEST_TEXT[heat.zmin < 0 ? "signed" : "share"] && cell("yaxis") >= larger * SMALLEST_TEXT.height;
  });
}

const ofBlocks = (facts, down, across) => `${facts} · each cell the largest of ${down} × ${across}`;

// The subtitle in lines that fit, and room for as many as any of the maps beside it may have, so that all lie level.
function headed(root, element, layout) {
  const { title, margin } = layout, font = `${title?.subtitle?.font?.size}px ${layout.font.family}`;
  if (!title?.subtitle?.text) return layout;
  const wrapped = (text, width) => lines(text, width - 2 * SUBTITLE.edge, font);
  const most = Math.max(...root.figures.map(({ layout: { meta, title: other } }, i) => {
    const cut = meta.panels[0] && Math.max(meta.panels[0].rows, meta.panels[0].columns) > MOST_CELLS && !other.subtitle.text.includes("each cell");
    return wrapped(cut ? ofBlocks(other.subtitle.text, 2, 2) : other.subtitle.text, root.children[i].clientWidth).length;
  }));
  if (most < 2) return layout;
  const more = (SUBTITLE.line * (title.subtitle.font.size / 11)) * (most - 1);
  const text = wrapped(title.subtitle.text, element.clientWidth).join("<br>");
  return {
    ...layout,
    margin: { ...margin, t: margin.t + more - SUBTITLE.free },
    title: { ...title, pad: { ...title.pad, b: title.pad.b + more }, subtitle: { ...title.subtitle, text } },
  };
}

// An axis as it is seen. On a tick, Plotly's hover repeats the tick's short text; a hair beside it, it says the position
// and the whole token. Lines and bars have no such texts, and their ticks stay where they are.
function axisSeen(root, element, layout, name) {
  const axis = layout[name], { figure } = element;
  if (!axis?.range || !axis.labelalias) return axis;
  const range = seenOf(root, figure, name), flat = name === "xaxis" && !axis.tickangle, { margin } = layout;
  const room = name === "yaxis" ? margin.l - 34 : flat ? Infinity : margin.b - 30;
  const { tickvals, ticktext } = ticked(axis, range, { along: along(element, layout)[name], room, flat, font: `${layout.font.size}px ${layout.font.family}` });
  return { ...axis, range: [...range], tickvals: tickvals.map((place) => place + 2e-4 * Math.abs(range[1] - range[0])), ticktext };
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
  const { title } = layout, text = ofBlocks(title.subtitle.text, view.block, view.block);
  return { ...layout, title: { ...title, subtitle: { ...title.subtitle, text } } };
}

// All of a figure but the numbers of its cells and the ends of their colours, as a text to compare.
function frameOf(data, layout) {
  const [{ z, zmin, zmax, colorbar, live, ...heat }, ...more] = data, { meta, ...shown } = layout;
  const length = (_, value) => (ArrayBuffer.isView(value) ? value.length : value);
  return JSON.stringify([heat, z?.length, z?.[0]?.length, more.map(({ z: _, ...one }) => one), shown], length);
}

// What a double click goes back to. Plotly by itself would know the range of the first map that it drew here.
function whole(element) {
  for (const [name] of AXES) {
    const axis = element._fullLayout[name], { range } = element.figure.layout[name] ?? {};
    if (range) [axis._rangeInitial0, axis._rangeInitial1] = range;
  }
}

const sameRows = (one, other) => one.length === other.length && one.every((row, i) => row.length === other[i].length && row.every((cell, k) => Object.is(cell, other[i][k])));
const sameGround = (one, other) => one === other || (Boolean(one) && Boolean(other) && sameRows(one, other));

export async function paint(element, root) {
  const { figure } = element;
  let { data } = figure, layout = themed(figure.layout, root);
  element.view = null;
  if (data[0].live && root.exact.knows(data[0].live)) {
    const made = filled(figure, root.exact, seenOf(root, figure, "xaxis"), seenOf(root, figure, "yaxis"));
    element.view = made.view;
    data = made.data;
    layout = noted(layout, made.view);
  }
  layout = headed(root, element, layout);
  if (figure.layout.meta.panels.length) layout = { ...layout, xaxis: axisSeen(root, element, layout, "xaxis"), yaxis: axisSeen(root, element, layout, "yaxis") };
  const more = data[0].texttemplate && !readable(root, figure) ? { texttemplate: "" } : {};
  // Where a cell is a block, `tell` says which cell of it is shown.
  if (element.view?.block > 1 || figure.layout.meta.at) Object.assign(more, { hoverinfo: "none", hovertemplate: undefined });
  data = [{ ...data[0], ...more }, ...data.slice(1)];
  const drawn = { frame: frameOf(data, layout), ground: data[1]?.z, width: element.clientWidth };
  const before = element.drawn;
  element.drawn = drawn;
  const cellsOnly = data[0].type === "heatmap" && before?.frame === drawn.frame && before.width === drawn.width && sameGround(before.ground, drawn.ground);
  let half = false; // whether the cells were painted over in part
  try {
    if (cellsOnly && repaint(element, data[0])) return;
  } catch (error) {
    console.warn("Cells could not be painted over; Plotly draws the map.", error);
    half = true;
  }
  const first = !element.data, drawing = window.Plotly.react(element, data, layout, CONFIG);
  if (first) element.on("plotly_afterplot", () => inked(element));
  await drawing;
  if (half) await window.Plotly.redraw(element); // `react` compares with what the cells say of themselves already
  inked(element);
  whole(element);
}

// After somebody has zoomed: this map, and those that have the same axis, as they are seen now.
export function zoomed(element, root) {
  const { figure } = element, before = JSON.stringify([...root.zooms]);
  if (!figure.layout.meta.panels.length) return;
  for (const [axis] of AXES) {
    const range = element._fullLayout[axis].range.map(Number), whole = figure.layout[axis].range.every((end, i) => Math.abs(end - range[i]) < 1e-9);
    if (whole) root.zooms.delete(axisOf(figure, axis));
    else root.zooms.set(axisOf(figure, axis), range.sort((one, other) => one - other));
  }
  return JSON.stringify([...root.zooms]) !== before && Promise.all([...root.children].map((other) => other.figure && paint(other, root)));
}

// After a zoom: what Python has pooled is cut anew by Python, until a cell is one number again. The page cuts its own in `paint`.
export function cutAnew(root, send) {
  const windows = {};
  for (const element of root.children) {
    const { blocks, panels } = element.figure?.layout.meta ?? {};
    if (!blocks) continue;
    const [rows, columns] = ["yaxis", "xaxis"].map((axis) => seenOf(root, element.figure, axis));
    const window = [...clipped(rows, panels[0].rows), ...clipped(columns, panels[0].columns)];
    if (String(window) === String(blocks.window)) element.asked = null;
    else if (element.asked !== String(window)) {
      element.asked = String(window);
      windows[element.figure.layout.uirevision] = window;
    }
  }
  if (Object.keys(windows).length) send("cut", { windows }); // all in one, or the second would take the place of the first
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
