// The words on a map: which tokens an axis names at this zoom, and a subtitle that does not run out of the map.

const LINE = 13 / 11; // what a label takes across its direction of reading, of the size of its letters
const APART = 6; // pixels between labels side by side
const NAME = /^(\d+)(?:…(\d+))?(?: (.*))?$/s; // "12 the"; of a block "6…7 the"; of a column "12"
const pen = document.createElement("canvas").getContext("2d");
const widths = new Map(); // by font and text: a hand that turns a knob asks for the same ones in every frame

export function widthOf(text, font) {
  const key = `${document.fonts.check(font)} ${font} ${text}`;
  if (!widths.has(key)) {
    if (widths.size > 5000) widths.clear();
    pen.font = font;
    widths.set(key, pen.measureText(text).width);
  }
  return widths.get(key);
}

const plain = (text) => text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// A label no longer than `room` pixels; what is left out is an ellipsis.
function fitting(label, room, font) {
  let letters = Array.from(plain(label));
  if (widthOf(letters.join(""), font) <= room) return label;
  while (letters.length > 1 && widthOf(`${letters.join("")}…`, font) > room) letters.pop();
  return `${escaped(letters.join(""))}…`;
}

const shortened = (token, longest) => {
  const letters = Array.from(plain(token));
  return letters.length > longest ? `${escaped(letters.slice(0, longest - 1).join(""))}…` : token;
};

// What an axis has at a place: its position in the text, how many positions a cell stands for, its token.
function named({ labelalias }, place) {
  const found = NAME.exec(labelalias[place] ?? "");
  if (!found) return null;
  const [, position, last, token] = found;
  return { place, index: Number(position) / (last ? last - position + 1 : 1), position, token };
}

// The named places of an axis between the two ends of a zoom; within one cell, its middle.
function namedWithin(axis, low, high) {
  const first = Math.ceil(low);
  const places = Array.from({ length: Math.max(0, Math.floor(high) - first + 1) }, (_, i) => first + i);
  const found = places.map((place) => named(axis, place)).filter(Boolean);
  if (found.length) return found;
  const middle = (low + high) / 2;
  const only = named(axis, Math.round(middle));
  return only ? [{ ...only, place: middle }] : [];
}

// Every n-th of some ticks, counted in each panel of its own, so that labels that need so many pixels stand apart.
function thinned(ticks, needed, slot, whole) {
  const steps = ticks.slice(1).map(({ index }, i) => index - ticks[i].index).filter((step) => step > 0);
  const unit = steps.length ? Math.min(...steps) : 1;
  // A whole axis that Python has thought out may be a little tighter.
  const stride = unit * Math.max(1, Math.ceil((whole ? needed - 3 : needed) / (unit * slot)));
  let last = -Infinity;
  return ticks.filter(({ index, place }) => {
    const stays = index % stride === 0 && (place - last) * slot >= needed - 3;
    if (stays) last = place;
    return stays;
  });
}

// The ticks of an axis between the two ends of a zoom, or of the whole: as many as fit, and where they are exact.
// `along`: the pixels of the axis; `room`: those that a label may take; `flat`: whether labels stand side by side.
export function ticked(axis, range, { along, room, flat, font, longest = 12 }) {
  if (!axis.labelalias || !axis.tickvals?.length) return {};
  const own = new Map(axis.tickvals.map((place, i) => [place, axis.ticktext[i]]));
  const begin = named(axis, axis.tickvals[0]);
  if (!begin) return {};
  const whole = axis.range.every((end, i) => end === range[i]);
  const [low, high] = [Math.min(...range), Math.max(...range)];
  const numbered = begin.token !== undefined && own.get(begin.place).startsWith(`${begin.position} `);
  const textOf = ({ place, position, token }) => {
    if (whole && own.get(place)) return own.get(place);
    if (!token) return position;
    return numbered ? `${position} ${shortened(token, longest)}` : shortened(token, longest);
  };
  let ticks = whole ? axis.tickvals.map((place) => named(axis, place)).filter(Boolean) : namedWithin(axis, low, high);
  ticks = ticks.map((tick) => ({ ...tick, text: fitting(textOf(tick), room, font) }));
  const widest = () => Math.max(...ticks.map(({ text }) => widthOf(plain(text), font)));
  const needed = flat ? APART + widest() : LINE * parseFloat(font);
  ticks = thinned(ticks, needed, along / (high - low), whole);
  return { tickvals: ticks.map(({ place }) => place), ticktext: ticks.map(({ text }) => text) };
}

// A text in as many lines as `room` pixels ask for, broken between its facts, or where one is too long between words.
export function lines(text, room, font) {
  const made = [""];
  const fits = (more) => widthOf(plain(`${made.at(-1)}${more}`), font) <= room;
  for (const [i, fact] of text.split(" · ").entries()) {
    if (i && !fits(` · ${fact}`)) made.push("");
    else if (i) made[made.length - 1] += " · ";
    for (const [j, word] of (fits(fact) ? [fact] : fact.split(" ")).entries()) {
      if (j && !fits(` ${word}`)) made.push("");
      made[made.length - 1] += (j && made.at(-1) ? " " : "") + word;
    }
  }
  return made;
}
