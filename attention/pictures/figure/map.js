// Draws one map: its theme, its texts, and the part that is visible at the current zoom.

import { MOST_CELLS, clipRange } from "./pooling.js";
import { drawOverview } from "./brush.js";
import { colorNumbers, repaint, setText } from "./cells.js";
import { gridTraces, showShares } from "./picture_grid.js";
import { css, lookOf } from "./screen_look.js";
import { enlargedSize, isEnlarged, offerEnlarging } from "./enlarge.js";
import { fitTicks, hasTokens, ordinal, quoted, textWidth, unescapeHtml, wrapText } from "./ticks.js";
import { AXES, visibleRange } from "./zoom.js";

// Without Plotly's toolbar, which would lie on titles: dragging zooms, a double click resets.
const CONFIG = { displayModeBar: false, responsive: false, scrollZoom: false, typesetMath: false };
const CELL = { space: 3, height: 1.3 }; // pixels around a number, and the height of its cell in font sizes
const SUBTITLE_SIZE = 12; // that for which `SUBTITLE` is
const PICTURE_HEIGHTS = { low: 260, high: 560 }; // pixels of a figure over a picture
const LABEL_WIDTHS = { full: 36, short: 18 }; // the pixels that the panel labels "L2 H11" and "2.11" need
const ABOVE_TILES = 210; // pixels of the page above the tiles of all heads
const OVERVIEW = 64; // rows or columns of the overview that Python sends beside a part of a map, as in attention/pictures/downsample.py
const LABEL_SPACE = 6; // pixels between labels side by side
const SUBTITLE = { line: 16, edge: 6 }; // pixels: the height of a line, and the space beside it

// The layout in the colours and the font of the page.
function applyTheme(layout, root) {
  const look = lookOf(root);
  const themed = look.themed(layout);
  const [text, background] = [css(look.ink), css(look.ground)];
  const font = { family: look.font, color: text };
  // A finger scrolls the page; it does not zoom a map. In a picture, a double click chooses a patch.
  const isFixed = Boolean(layout.meta.grid) || matchMedia("(pointer: coarse)").matches;
  return {
    ...themed,
    font: { ...layout.font, ...font },
    hoverlabel: { bgcolor: background, bordercolor: text, font: { ...font, size: 12 }, align: "left" },
    xaxis: { ...themed.xaxis, fixedrange: isFixed },
    yaxis: { ...themed.yaxis, fixedrange: isFixed },
    dragmode: isFixed ? false : "zoom",
  };
}

// The height of a figure. In a narrower space it is reduced so that panels keep their shape,
// but not below square cells. A picture, whose cells are squares, is as wide as its space if it is not too high then.
export function figureHeight({ height, margin, meta, xaxis, yaxis }, element) {
  const { clientWidth } = element;
  if (isEnlarged(element)) return enlargedSize(window.innerHeight, margin.t + margin.b, yaxis);
  const isFluid = meta.grid || yaxis?.scaleratio || (meta.design_width && clientWidth < meta.design_width);
  if (!isFluid) return height; // also of a chart, whose axes have no ranges
  const frame = margin.t + margin.b;
  const [across, down] = [xaxis, yaxis].map(({ range: [from, to] }) => Math.abs(to - from));
  const squares = ((clientWidth - margin.l - margin.r) * down) / across;
  if (yaxis.scaleratio) { // tiles: as large as the page is wide, if they stand on one screen then
    return Math.round(Math.min(frame + squares * yaxis.scaleratio, Math.max(height, window.innerHeight - ABOVE_TILES)));
  }
  if (meta.grid) return Math.round(Math.min(PICTURE_HEIGHTS.high, Math.max(PICTURE_HEIGHTS.low, frame + squares)));
  const proportional = (height - frame) * (clientWidth / meta.design_width);
  return Math.min(height, Math.round(frame + Math.max(proportional, squares)));
}

// The width of a figure: that of its element, unless it is enlarged and scrolls.
export function figureWidth({ margin, xaxis }, element) {
  return isEnlarged(element) ? enlargedSize(element.clientWidth, margin.l + margin.r, xaxis) : element.clientWidth;
}

// Shortens the labels of panels, or removes them, if the panels are narrower than the labels.
function shortenLabels(layout, element) {
  const { annotations: labels, meta, xaxis, yaxis } = layout;
  const [panel] = meta.panels;
  if (!meta.design_width || !labels?.length) return layout;
  const [from, to] = xaxis.range;
  const shortened = (shorten) => ({ ...layout, annotations: labels.map((label) => (label.name === "colors" ? label : { ...label, text: shorten(label.text) })) });
  if (yaxis.scaleratio) return shortened(fittingLabel(layout, element));
  const pixels = (plotSize(element, layout).xaxis * panel.columns) / Math.abs(to - from);
  if (pixels >= LABEL_WIDTHS.full) return layout;
  return shortened((text) => (pixels < LABEL_WIDTHS.short ? "" : text.replace(/L(\d+) H(\d+)/, "$1.$2")));
}

// What is written under tiles: the name of the head and its value, in two lines or one, the value alone, or nothing.
function fittingLabel(layout, element) {
  const { annotations, font, meta: { panels: [first, ...others] }, xaxis, yaxis } = layout;
  const labels = annotations.filter(({ name }) => name !== "colors");
  const size = plotSize(element, layout);
  const cells = ({ range: [from, to] }) => Math.abs(to - from);
  const cell = Math.min(size.xaxis / cells(xaxis), size.yaxis / cells(yaxis) / yaxis.scaleratio); // its width
  const pitch = (side, axis) => Math.min(...others.map((other) => other[side] - first[side]).filter((distance) => distance > 0), cells(axis));
  const width = cell * pitch("x", xaxis) - LABEL_SPACE / 2;
  const height = cell * yaxis.scaleratio * (pitch("y", yaxis) - first.rows);
  const plain = (line) => unescapeHtml(line.replace(/<\/?b>/g, ""));
  const fits = (shorten) => labels.every(({ text, font: { size: pixels } = font }) => {
    const lines = shorten(text).split("<br>");
    return lines.length * pixels <= height && lines.every((line) => textWidth(plain(line), `${pixels}px ${font.family}`) <= width);
  });
  const kinds = [(text) => text, (text) => text.replace("<br>", " "), (text) => text.split("<br>").at(-1)];
  return kinds.find(fits) ?? (() => "");
}

// The size in pixels of the plot area.
function plotSize(element, layout) {
  const { height, margin } = layout;
  return { xaxis: figureWidth(layout, element) - margin.l - margin.r, yaxis: height - margin.t - margin.b };
}

// Makes room for the labels of tokens, and turns those of keys where they do not fit side by side: in all maps alike, so that they stay level.
function fitMargins(state, layout) {
  const font = `${layout.font.size}px ${layout.font.family}`;
  const widest = (axis) => (hasTokens(axis) ? Math.max(...axis.ticktext.map((text) => textWidth(unescapeHtml(text), font))) : 0);
  const maps = state.figures.map(({ layout: own }, i) => ({ own, i })).filter(({ own }) => own.meta.panels.length === 1);
  if (!maps.length || layout.meta.panels.length !== 1) return layout;
  const most = Math.min(...maps.map(({ i }) => state.pictures[i].element.clientWidth)) / 3;
  const left = Math.ceil(Math.min(most, Math.max(layout.margin.l, ...maps.map(({ own }) => widest(own.yaxis) + 36))));
  const below = Math.ceil(Math.max(...maps.map(({ own, i }) => {
    const [from, to] = own.xaxis.range;
    const cell = plotSize(state.pictures[i].element, { ...own, margin: { ...own.margin, l: left } }).xaxis / Math.abs(to - from);
    return own.xaxis.tickangle || cell < widest(own.xaxis) + LABEL_SPACE ? widest(own.xaxis) : 0;
  })));
  const turns = { tickangle: -90, title: { ...layout.xaxis.title, standoff: below - 6 } };
  const xaxis = { ...layout.xaxis, ...(below && hasTokens(layout.xaxis) ? turns : {}) };
  return { ...layout, xaxis, margin: { ...layout.margin, l: left, b: Math.max(layout.margin.b, below && 32 + below) } };
}

// Whether cells are large enough for readable numbers at this width and zoom. Maps of the same shape show numbers
// together, such as weights and scores.
function showsNumbers(state, figure, { margin: { l, b }, font: { family } }) {
  const [ownPanel] = figure.layout.meta.panels;
  return state.figures.every((other, i) => {
    const { data: [heat], layout } = other;
    const [panel] = layout.meta.panels;
    if (!heat.texttemplate || panel.rows !== ownPanel.rows || panel.columns !== ownPanel.columns) return true;
    const pixels = plotSize(state.pictures[i].element, { ...layout, margin: { ...layout.margin, l, b } });
    const cell = (axis) => {
      const [from, to] = visibleRange(state, other, axis);
      return pixels[axis] / Math.abs(to - from);
    };
    const size = heat.textfont?.size ?? SUBTITLE_SIZE;
    const widest = Math.max(-heat.zmin, heat.zmax).toFixed(2);
    return cell("xaxis") >= textWidth(heat.zmin < 0 ? `-${widest}` : widest, `${size}px ${family}`) + CELL.space && cell("yaxis") >= size * CELL.height;
  });
}

const blockSubtitle = (facts, down, across) => `${facts} · each cell the largest of ${down} × ${across}`;

// Wraps the subtitle, and reserves as many lines as any map beside it may need, so that all maps are level.
function wrapSubtitle(state, element, layout) {
  const { title, margin } = layout;
  if (!title?.subtitle?.text) return layout;
  const font = `${title.subtitle.font.size}px ${layout.font.family}`;
  const wrap = (text, width) => wrapText(text, width - 2 * SUBTITLE.edge, font);
  const maxLines = Math.max(...state.figures.map((figure, i) => {
    const { text } = figure.layout.title.subtitle;
    const [panel] = figure.layout.meta.panels;
    const mayPool = panel && Math.max(panel.rows, panel.columns) > MOST_CELLS && !text.includes("each cell");
    return wrap(mayPool ? blockSubtitle(text, 2, 2) : text, state.pictures[i].element.clientWidth).length;
  }));
  if (maxLines < 2) return layout;
  const extra = SUBTITLE.line * (title.subtitle.font.size / SUBTITLE_SIZE) * (maxLines - 1);
  const text = wrap(title.subtitle.text, element.clientWidth).join("<br>");
  return {
    ...layout,
    margin: { ...margin, t: margin.t + extra },
    title: { ...title, pad: { ...title.pad, b: title.pad.b + extra }, subtitle: { ...title.subtitle, text } },
  };
}

// The visible part of an axis, with fitting ticks, and which of them are labelled: every n-th. Exactly on a tick, Plotly's hover repeats the short label of the tick;
// a small shift makes it show the position and the full token. Lines and bars have no such labels and keep their ticks.
function fitAxis(state, { element, figure }, layout, name) {
  const axis = layout[name];
  if (!axis?.range || !axis.labelalias) return [axis];
  const range = visibleRange(state, figure, name);
  const horizontal = name === "xaxis" && !axis.tickangle;
  const { font, margin } = layout;
  const isMap = layout.meta.panels.length === 1;
  const length = plotSize(element, layout)[name];
  const { tickvals, ticktext, stride } = fitTicks(axis, range, {
    length,
    room: name === "yaxis" ? margin.l - 34 : horizontal ? Infinity : margin.b - 30,
    horizontal,
    chosen: !isMap,
    font: `${font.size}px ${font.family}`,
  });
  const shift = 2e-4 * Math.abs(range[1] - range[0]);
  const title = isMap && stride > 1 ? { ...axis.title, text: strideTitle(axis.title.text, stride, length, font) } : axis.title;
  return [{ ...axis, labelalias: quoted(axis.labelalias), title, range: [...range], tickvals: tickvals.map((place) => place + shift), ticktext }, isMap ? stride : 1];
}

// The title of an axis that labels every n-th token, as much of it as fits.
function strideTitle(title, stride, length, font) {
  const every = `every ${ordinal(stride)} is labelled`;
  const short = title.replace(/ \(.*\)$/, "");
  const fits = (text) => textWidth(unescapeHtml(text), `${Math.round(1.2 * font.size)}px ${font.family}`) <= length;
  return [`${title} · ${every}`, `${short} · ${every}`].find(fits) ?? every;
}

// The traces of a map that the page computes.
function liveTraces({ figure, view }, liveLayer) {
  const [heat, ...others] = figure.data;
  // Python's numbers, if it sent them and no knob has changed.
  const z = heat.z && !liveLayer.changed ? heat.z : view.z;
  const data = [{ ...heat, ...view.place, ...liveLayer.colors(heat), z }];
  if (view.hidden) data.push({ ...figure.layout.meta.hidden_trace, ...view.place, z: view.hidden });
  return [...data, ...others.filter(({ type }) => type !== "heatmap")]; // the trace of the colour bar
}

// The traces of a map of which Python sent another part: the overview, until Python answers.
function overviewTraces(state, figure) {
  const { data: [heat, ...others], layout: { meta: { blocks, overview, panels: [panel] } } } = figure;
  if (!overview) return null;
  const [top, bottom, left, right] = blocks.window;
  const [columns, rows] = AXES.map((axis) => visibleRange(state, figure, axis));
  const isSent = clipRange(rows, panel.rows).every((row) => row >= top && row <= bottom) && clipRange(columns, panel.columns).every((column) => column >= left && column <= right);
  if (isSent) return null;
  const [down, across] = [panel.rows, panel.columns].map((size) => Math.ceil(size / OVERVIEW));
  const coarse = { ...heat, z: overview, x0: (across - 1) / 2, dx: across, y0: (down - 1) / 2, dy: down, hoverinfo: "skip", hovertemplate: undefined };
  return [coarse, ...others.filter(({ type }) => type !== "heatmap")];
}

// The note beside the bar of colours that end at the largest number, as `scale_note` in attention/pictures/scales.py.
function withFullColor(layout, { meta, zmax }) {
  if (meta?.colors !== "stretched") return layout;
  const text = `full colour = ${Number(zmax.toPrecision(3))}`;
  const more = (note) => (note.text.endsWith(" or more") ? " or more" : "");
  return { ...layout, annotations: layout.annotations.map((note) => (note.name === "colors" ? { ...note, text: text + more(note) } : note)) };
}

// Adds the size of the blocks to the subtitle.
function addBlockSubtitle(layout, view) {
  if (!view || view.block === 1) return layout;
  const { title } = layout;
  const text = blockSubtitle(title.subtitle.text, view.block, view.block);
  return { ...layout, title: { ...title, subtitle: { ...title.subtitle, text } } };
}

// The data and the layout that Plotly draws for a picture now.
function currentPlot(state, picture) {
  const { figure } = picture;
  let { data } = figure;
  const { element } = picture;
  const size = { height: figureHeight(figure.layout, element), ...(picture.wasEnlarged && { width: figureWidth(figure.layout, element) }) };
  let layout = applyTheme({ ...figure.layout, ...size }, state.root);
  picture.view = null;
  const isLive = picture.live && state.liveLayer?.canCompute(picture.live);
  if (isLive && picture.meta.grid) {
    data = gridTraces(picture, picture.layerOf(state));
  } else if (isLive) {
    const [rows, columns] = ["yaxis", "xaxis"].map((axis) => visibleRange(state, figure, axis));
    const liveLayer = picture.layerOf(state);
    picture.view = liveLayer.view(picture.live, rows, columns);
    data = liveTraces(picture, liveLayer);
    layout = withFullColor(layout, data[0]);
    layout = addBlockSubtitle(layout, picture.view);
  } else if (data[0].z) {
    data = overviewTraces(state, figure) ?? data;
  }
  data = lookOf(state.root).themed(data);
  layout = shortenLabels(fitMargins(state, wrapSubtitle(state, picture.element, layout)), picture.element);
  if (picture.meta.panels.length) {
    const [[xaxis, across], [yaxis, down]] = AXES.map((axis) => fitAxis(state, picture, layout, axis));
    layout = { ...layout, xaxis, yaxis };
    offerEnlarging(picture, across > 1 || down > 1);
  }
  const overrides = data[0].texttemplate && !showsNumbers(state, figure, layout) ? { texttemplate: "" } : {};
  // As many digits as the line of the chosen cell; files have all of them.
  if (data[0].hovertemplate) overrides.hovertemplate = data[0].hovertemplate.replace("%{z:.9g}", "%{z:.4~g}");
  // If a cell is a block, `showTip` shows which of its cells the number belongs to.
  const isPooled = data[0].hoverinfo !== "skip" && (picture.view?.block > 1 || picture.meta.offsets);
  if (isPooled) Object.assign(overrides, { hoverinfo: "none", hovertemplate: undefined });
  return { data: [{ ...data[0], ...overrides }, ...data.slice(1)], layout };
}

// Everything of a figure except the numbers of its cells and their colour range with its note, as text for comparison.
function frameKey(data, layout) {
  const [{ z, zmin, zmax, colorbar, live, ...heat }, ...others] = data;
  const { meta, ...rest } = layout;
  rest.annotations = rest.annotations?.map(({ text, ...note }) => (note.name === "colors" ? note : { ...note, text }));
  const length = (_, value) => (ArrayBuffer.isView(value) ? value.length : value);
  return JSON.stringify([heat, z?.length, z?.[0]?.length, others.map(({ z: _, ...other }) => other), rest], length);
}

function equalHiddenCells(a, b) {
  if (a === b) return true;
  return Boolean(a && b) && a.length === b.length && a.every((row, i) => {
    return row.length === b[i].length && row.every((cell, k) => Object.is(cell, b[i][k]));
  });
}

// Repaints only the numbers of the cells if nothing else changed; returns whether it did. An error here concerns Plotly's
// internal state, so `paint` then lets Plotly draw.
function repaintCells(picture, data, layout) {
  const previous = picture.lastPaint;
  const hiddenCells = data.slice(1).map(({ z }) => z); // hidden cells, and cells without a partner
  const current = { frame: frameKey(data, layout), hiddenCells, width: figureWidth(layout, picture.element) };
  picture.lastPaint = current;
  if (data[0].type !== "heatmap" || previous?.frame !== current.frame || previous.width !== current.width) return false;
  if (!hiddenCells.every((cells, i) => equalHiddenCells(previous.hiddenCells[i], cells)) || !repaint(picture.element, data[0])) return false;
  writeFullColor(picture.element, layout);
  return true;
}

// Writes the note of the colour range as `withFullColor` has it, without Plotly.
function writeFullColor(element, { annotations = [] }) {
  const index = annotations.findIndex(({ name }) => name === "colors");
  const written = element.querySelector(`.annotation[data-index="${index}"] .annotation-text`);
  if (!written) return;
  const { text } = annotations[index];
  setText(written, text);
  element.layout.annotations[index].text = element._fullLayout.annotations[index].text = text;
}

// Paints the current state of a picture with the least work.
export async function paint(state, picture) {
  await paintPlot(state, picture);
  if (picture.meta.grid) showShares(picture, picture.layerOf(state));
  drawOverview(state, picture);
}

async function paintPlot(state, picture) {
  const { element } = picture;
  const { data, layout } = currentPlot(state, picture);
  let isPartial = false; // whether only a part of the cells was repainted
  try {
    if (repaintCells(picture, data, layout)) return;
  } catch (error) {
    console.warn("Cells could not be repainted; Plotly draws the map.", error);
    isPartial = true;
  }
  const first = !element.data;
  const drawing = window.Plotly.react(element, data, layout, CONFIG);
  if (first) element.on("plotly_afterplot", () => colorNumbers(element));
  await drawing;
  if (isPartial) await window.Plotly.redraw(element); // `react` compares with data that `repaint` has changed already
  colorNumbers(element);
  setFullRange(picture);
}

// Sets the range that a double click restores. Plotly would use the range of the first map drawn in this element.
function setFullRange({ element, figure }) {
  for (const name of AXES) {
    const axis = element._fullLayout[name];
    const { range } = figure.layout[name] ?? {};
    if (range) [axis._rangeInitial0, axis._rangeInitial1] = range;
  }
}
