// The texts of a map: which tokens an axis labels at this zoom, and a subtitle that fits the width of the map.

const LINE_HEIGHT = 13 / 11; // of a label, relative to its font size
const SPACING = 6; // pixels between labels side by side
const LABEL = /^(\d+)(?:…(\d+))?(?: (.*))?$/s; // "12 the"; a block "6…7 the"; a column "12"
const PATCH = /^patch row (\d+), column (\d+)(?: of picture (\d+))?$/; // shortened as in attention/base/tokens.py
const canvas = document.createElement("canvas").getContext("2d");
const widths = new Map(); // by font and text: while a knob changes, every frame measures the same texts

export function textWidth(text, font) {
  const key = `${document.fonts.check(font)} ${font} ${text}`;
  if (!widths.has(key)) {
    if (widths.size > 5000) widths.clear();
    canvas.font = font;
    widths.set(key, canvas.measureText(text).width);
  }
  return widths.get(key);
}

export const unescapeHtml = (text) => text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
const escapeHtml = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// A label of at most `room` pixels, truncated with an ellipsis.
function truncateToWidth(label, room, font) {
  let characters = Array.from(unescapeHtml(label));
  if (textWidth(characters.join(""), font) <= room) return label;
  while (characters.length > 1 && textWidth(`${characters.join("")}…`, font) > room) characters.pop();
  return `${escapeHtml(characters.join(""))}…`;
}

const truncateToLength = (token, maxLength) => {
  const text = token.length > maxLength ? token.replace(PATCH, (_, row, column, picture) => `patch${picture ?? ""} ${row},${column}`) : token;
  const characters = Array.from(unescapeHtml(text));
  return characters.length > maxLength ? `${escapeHtml(characters.slice(0, maxLength - 1).join(""))}…` : text;
};

// The label of an axis at a place: its index among cells, its position in the text, its token.
function labelAt({ labelalias }, place) {
  const match = LABEL.exec(labelalias[place] ?? "");
  if (!match) return null;
  const [, position, last, token] = match;
  return { place, index: Number(position) / (last ? last - position + 1 : 1), position, token };
}

// Whether the places of an axis are tokens, not only numbered.
export const hasTokens = (axis) => Boolean(axis.labelalias && axis.tickvals?.length && labelAt(axis, axis.tickvals[0])?.token !== undefined);

// A place in an order, in words: 2nd, 3rd, 11th.
export function ordinal(n) {
  const ends = { 1: "st", 2: "nd", 3: "rd" };
  return `${n}${n % 100 > 10 && n % 100 < 14 ? "th" : ends[n % 10] ?? "th"}`;
}

const quotedLabels = new WeakMap(); // by the labels of an axis

// The labels of an axis with their tokens in quotation marks, as tooltips say them: 5 “and”. Patches of a picture are no words.
export function quoted(labels) {
  if (!quotedLabels.has(labels)) {
    const quote = (text) => text.replace(LABEL, (all, first, last, token) => {
      return token && !PATCH.test(token) ? `${all.slice(0, all.length - token.length)}“${token}”` : all;
    });
    quotedLabels.set(labels, Object.fromEntries(Object.entries(labels).map(([place, text]) => [place, quote(text)])));
  }
  return quotedLabels.get(labels);
}

// The labelled places of an axis within a zoom; within a single cell, the middle of the zoom.
function labelsWithin(axis, low, high) {
  const first = Math.ceil(low);
  const places = Array.from({ length: Math.max(0, Math.floor(high) - first + 1) }, (_, i) => first + i);
  const labels = places.map((place) => labelAt(axis, place)).filter(Boolean);
  if (labels.length) return labels;
  const middle = (low + high) / 2;
  const single = labelAt(axis, Math.round(middle));
  return single ? [{ ...single, place: middle }] : [];
}

// Every n-th tick, counted in each panel separately, so that labels of `needed` pixels do not overlap.
function thinOut(ticks, needed, pixelsPerCell, isFull) {
  const steps = ticks.slice(1).map(({ index }, i) => index - ticks[i].index).filter((step) => step > 0);
  const unit = steps.length ? Math.min(...steps) : 1;
  // Python chose the ticks of a full axis; these may be slightly closer.
  const stride = unit * Math.max(1, Math.ceil((isFull ? needed - 3 : needed) / (unit * pixelsPerCell)));
  let last = -Infinity;
  return ticks.filter(({ index, place }) => {
    const keeps = index % stride === 0 && (place - last) * pixelsPerCell >= needed - 3;
    if (keeps) last = place;
    return keeps;
  });
}

// The ticks of an axis within a range, as many as fit without overlap, and the `stride` from one labelled token to the next.
// `length`: the pixels of the axis; `room`: the pixels of a label; `horizontal`: whether labels stand side by side; `chosen`: whether
// only the ticks of the whole axis that Python chose may stand, as in a map of many panels.
export function fitTicks(axis, range, { length, room, horizontal, font, chosen = false, maxLength = 12 }) {
  if (!axis.labelalias || !axis.tickvals?.length) return { tickvals: [], ticktext: [], stride: 1 };
  const tickTexts = new Map(axis.tickvals.map((place, i) => [place, axis.ticktext[i]]));
  const first = labelAt(axis, axis.tickvals[0]);
  if (!first) return { tickvals: [], ticktext: [], stride: 1 };
  const isFull = axis.range.every((end, i) => end === range[i]);
  const [low, high] = [Math.min(...range), Math.max(...range)];
  const showsPositions = first.token !== undefined && tickTexts.get(first.place).startsWith(`${first.position} `);
  const textOf = ({ place, position, token }) => {
    if (isFull && tickTexts.get(place)) return tickTexts.get(place);
    if (!token) return position;
    return showsPositions ? `${position} ${truncateToLength(token, maxLength)}` : truncateToLength(token, maxLength);
  };
  let ticks = isFull && (chosen || first.token === undefined) ? axis.tickvals.map((place) => labelAt(axis, place)).filter(Boolean) : labelsWithin(axis, low, high);
  ticks = ticks.map((tick) => ({ ...tick, text: truncateToWidth(textOf(tick), room, font) }));
  const widest = () => Math.max(...ticks.map(({ text }) => textWidth(unescapeHtml(text), font)));
  const needed = horizontal ? SPACING + widest() : LINE_HEIGHT * parseFloat(font);
  ticks = thinOut(ticks, needed, length / (high - low), isFull);
  const stride = first.token === undefined || ticks.length < 2 ? 1 : ticks[1].position - ticks[0].position;
  return { tickvals: ticks.map(({ place }) => place), ticktext: ticks.map(({ text }) => text), stride };
}

// A text wrapped to lines of `room` pixels, between its facts, or within a fact that is too long between its words.
export function wrapText(text, room, font) {
  const lines = [""];
  const fits = (more) => textWidth(unescapeHtml(`${lines.at(-1)}${more}`), font) <= room;
  for (const [i, fact] of text.split(" · ").entries()) {
    if (i && !fits(` · ${fact}`)) lines.push("");
    else if (i) lines[lines.length - 1] += " · ";
    for (const [j, word] of (fits(fact) ? [fact] : fact.split(" ")).entries()) {
      if (j && !fits(` ${word}`)) lines.push("");
      lines[lines.length - 1] += (j && lines.at(-1) ? " " : "") + word;
    }
  }
  return lines;
}
