// One map on the screen: its theme, its words, and what is drawn of it at this zoom.

import { MOST_CELLS } from "./blocks.js";
import { inked, repaint } from "./cells.js";
import { lines, ticked } from "./words.js";
import { AXES, seenOf } from "./zoom.js";

const CONFIG = {
  displaylogo: false,
  responsive: false,
  showSendToCloud: false,
  scrollZoom: false,
  typesetMath: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d"],
};
// Pixels of a cell below which its number, with or without a sign, would be unreadable, at the usual size of letters.
const SMALLEST_TEXT = { signed: 23, share: 20, height: 13 };
const LETTERS = { text: 10, subtitle: 11 }; // their usual sizes
const NAMES = { whole: 36, short: 18 }; // pixels of a panel in which "L2 H11" and "2.11" find room
const SUBTITLE = { line: 14, edge: 6, free: 2 }; // pixels of a line, beside it, and that are free above the title

// The layout in the colours and the font of the page.
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

// How high a figure is: where there is less room than it was made for, as high as keeps the shape of its panels, but
// for cells that would be wider than high.
export function heightOf({ height, margin, meta, xaxis, yaxis }, { clientWidth }) {
  if (!meta.wide || clientWidth >= meta.wide) return height;
  const [across, down] = [xaxis, yaxis].map(({ range: [from, to] }) => Math.abs(to - from));
  const frame = margin.t + margin.b;
  const squares = ((clientWidth - margin.l - margin.r) * down) / across;
  const kept = (height - frame) * (clientWidth / meta.wide);
  return Math.min(height, Math.round(frame + Math.max(kept, squares)));
}

// The names of panels, in short or not at all where these are narrower than the names.
function namedShort(layout, element) {
  const [panel] = layout.meta.panels;
  const names = layout.annotations;
  if (!layout.meta.wide || !names?.length) return layout;
  const [from, to] = layout.xaxis.range;
  const pixels = (along(element, layout).xaxis * panel.columns) / Math.abs(to - from);
  if (pixels >= NAMES.whole) return layout;
  const short = (text) => (pixels < NAMES.short ? "" : text.replace(/L(\d+) H(\d+)/, "$1.$2"));
  return { ...layout, annotations: names.map((one) => ({ ...one, text: short(one.text) })) };
}

// The pixels between the margins of a map.
function along(element, { height, margin }) {
  return { xaxis: element.clientWidth - margin.l - margin.r, yaxis: height - margin.t - margin.b };
}

// Numbers in the cells only where a cell is large enough to read them, at this width and this zoom; maps of the same
// rows and columns have them together, as weights and the scores they are made of.
function readable(shown, figure) {
  const [own] = figure.layout.meta.panels;
  return shown.figures.every((other, i) => {
    const { data: [heat], layout } = other;
    const [panel] = layout.meta.panels;
    if (!heat.texttemplate || panel.rows !== own.rows || panel.columns !== own.columns) return true;
    const pixels = along(shown.pictures[i].element, layout);
    const cell = (axis) => {
      const [from, to] = seenOf(shown, other, axis);
      return pixels[axis] / Math.abs(to - from);
    };
    const larger = (heat.textfont?.size ?? LETTERS.text) / LETTERS.text;
    const wide = SMALLEST_TEXT[heat.zmin < 0 ? "signed" : "share"];
    return cell("xaxis") >= larger * wide && cell("yaxis") >= larger * SMALLEST_TEXT.height;
  });
}

const ofBlocks = (facts, down, across) => `${facts} · each cell the largest of ${down} × ${across}`;

// The subtitle in lines that fit, and room for as many as any of the maps beside it may have, so that all lie level.
function headed(shown, element, layout) {
  const { title, margin } = layout;
  if (!title?.subtitle?.text) return layout;
  const font = `${title.subtitle.font.size}px ${layout.font.family}`;
  const wrapped = (text, width) => lines(text, width - 2 * SUBTITLE.edge, font);
  const most = Math.max(...shown.figures.map((figure, i) => {
    const { text } = figure.layout.title.subtitle;
    const [panel] = figure.layout.meta.panels;
    const cut = panel && Math.max(panel.rows, panel.columns) > MOST_CELLS && !text.includes("each cell");
    return wrapped(cut ? ofBlocks(text, 2, 2) : text, shown.pictures[i].element.clientWidth).length;
  }));
  if (most < 2) return layout;
  const more = SUBTITLE.line * (title.subtitle.font.size / LETTERS.subtitle) * (most - 1);
  const text = wrapped(title.subtitle.text, element.clientWidth).join("<br>");
  return {
    ...layout,
    margin: { ...margin, t: margin.t + more - SUBTITLE.free },
    title: { ...title, pad: { ...title.pad, b: title.pad.b + more }, subtitle: { ...title.subtitle, text } },
  };
}

// An axis as it is seen. On a tick, Plotly's hover repeats the tick's short text; a hair beside it, it says the
// position and the whole token. Lines and bars have no such texts, and their ticks stay where they are.
function axisSeen(shown, { element, figure }, layout, name) {
  const axis = layout[name];
  if (!axis?.range || !axis.labelalias) return axis;
  const range = seenOf(shown, figure, name);
  const flat = name === "xaxis" && !axis.tickangle;
  const { font, margin } = layout;
  const { tickvals, ticktext } = ticked(axis, range, {
    along: along(element, layout)[name],
    room: name === "yaxis" ? margin.l - 34 : flat ? Infinity : margin.b - 30,
    flat,
    font: `${font.size}px ${font.family}`,
  });
  const hair = 2e-4 * Math.abs(range[1] - range[0]);
  return { ...axis, range: [...range], tickvals: tickvals.map((place) => place + hair), ticktext };
}

// The traces of a map that the page makes.
function filled({ figure, view }, exact) {
  const [heat, ...others] = figure.data;
  // Python's own numbers, where it sent them, as long as no hand has turned anything.
  const z = heat.z && !exact.turned ? heat.z : view.z;
  const data = [{ ...heat, ...view.place, ...exact.colors(heat), z }];
  if (view.ground) data.push({ ...figure.layout.meta.ground, ...view.place, z: view.ground });
  return [...data, ...others.filter(({ type }) => type !== "heatmap")]; // what has the colour bar
}

// Titles the map with what is so now: which block a cell stands for.
function noted(layout, view) {
  if (!view || view.block === 1) return layout;
  const { title } = layout;
  const text = ofBlocks(title.subtitle.text, view.block, view.block);
  return { ...layout, title: { ...title, subtitle: { ...title.subtitle, text } } };
}

// What Plotly is to draw of a picture now.
function planned(shown, picture) {
  const { figure } = picture;
  let { data } = figure;
  let layout = themed({ ...figure.layout, height: heightOf(figure.layout, picture.element) }, shown.root);
  picture.view = null;
  if (picture.live && shown.exact.knows(picture.live)) {
    const [rows, columns] = ["yaxis", "xaxis"].map((axis) => seenOf(shown, figure, axis));
    const exact = picture.exactOf(shown);
    picture.view = exact.view(picture.live, rows, columns);
    data = filled(picture, exact);
    layout = noted(layout, picture.view);
  }
  layout = namedShort(headed(shown, picture.element, layout), picture.element);
  if (picture.meta.panels.length) {
    const [xaxis, yaxis] = AXES.map((axis) => axisSeen(shown, picture, layout, axis));
    layout = { ...layout, xaxis, yaxis };
  }
  const more = data[0].texttemplate && !readable(shown, figure) ? { texttemplate: "" } : {};
  // Where a cell is a block, `tell` says which cell of it is shown.
  const blocks = picture.view?.block > 1 || picture.meta.at;
  if (blocks) Object.assign(more, { hoverinfo: "none", hovertemplate: undefined });
  return { data: [{ ...data[0], ...more }, ...data.slice(1)], layout };
}

// All of a figure but the numbers of its cells and the ends of their colours, as a text to compare.
function frameOf(data, layout) {
  const [{ z, zmin, zmax, colorbar, live, ...heat }, ...others] = data;
  const { meta, ...rest } = layout;
  const length = (_, value) => (ArrayBuffer.isView(value) ? value.length : value);
  return JSON.stringify([heat, z?.length, z?.[0]?.length, others.map(({ z: _, ...one }) => one), rest], length);
}

function sameGround(one, other) {
  if (one === other) return true;
  return Boolean(one && other) && one.length === other.length && one.every((row, i) => {
    return row.length === other[i].length && row.every((cell, k) => Object.is(cell, other[i][k]));
  });
}

// Whether nothing but the numbers in the cells has changed, and they were painted over. What goes wrong in between goes
// wrong with what Plotly keeps to itself, and is Plotly's to put right.
function paintedOver(picture, data, layout) {
  const before = picture.drawn;
  const grounds = data.slice(1).map(({ z }) => z); // of hidden cells, and of those without a partner
  const now = { frame: frameOf(data, layout), grounds, width: picture.element.clientWidth };
  picture.drawn = now;
  if (data[0].type !== "heatmap" || before?.frame !== now.frame || before.width !== now.width) return false;
  return grounds.every((ground, i) => sameGround(before.grounds[i], ground)) && repaint(picture.element, data[0]);
}

// Paints a picture as it is now, for as little as that takes.
export async function paint(shown, picture) {
  const { element } = picture;
  const { data, layout } = planned(shown, picture);
  let half = false; // whether the cells were painted over in part
  try {
    if (paintedOver(picture, data, layout)) return;
  } catch (error) {
    console.warn("Cells could not be painted over; Plotly draws the map.", error);
    half = true;
  }
  const first = !element.data;
  const drawing = window.Plotly.react(element, data, layout, CONFIG);
  if (first) element.on("plotly_afterplot", () => inked(element));
  await drawing;
  if (half) await window.Plotly.redraw(element); // `react` compares with what the cells say of themselves already
  inked(element);
  rememberWhole(picture);
}

// What a double click goes back to. Plotly by itself would know the range of the first map that it drew here.
function rememberWhole({ element, figure }) {
  for (const name of AXES) {
    const axis = element._fullLayout[name];
    const { range } = figure.layout[name] ?? {};
    if (range) [axis._rangeInitial0, axis._rangeInitial1] = range;
  }
}
