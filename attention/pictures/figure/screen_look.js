// The colours and sizes of attention/pictures/look.py, as the page has them now: light or dark, on a screen or projected.

import { inkOn, luminance } from "./cells.js";

/** The roles between which colours are mixed. */
const SCALES = [["zero", "weight"], ["most-negative", "negative"], ["negative", "zero"], ["zero", "positive"], ["positive", "most-positive"]];

const rgb = (color) => color.match(/[\d.]+/g).slice(0, 3).map(Number);
export const css = (color) => `rgb(${color.map(Math.round).join(",")})`;
export const mix = (a, b, t) => a.map((channel, i) => channel + (b[i] - channel) * t);

function along(stops, t) {
  const at = Math.max(0, Math.min(1, t)) * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(at));
  return mix(stops[i], stops[i + 1], at - i);
}

const contrast = (a, b) => {
  const [x, y] = [luminance(a) + 0.05, luminance(b) + 0.05];
  return Math.max(x, y) / Math.min(x, y);
};

const hexOf = (color) => `#${color.map((channel) => Math.round(channel).toString(16).padStart(2, "0")).join("")}`;
export const channelsOf = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

// The share of `to` in a mixture of two colours; null if it is none.
function shareOf(color, from, to) {
  const [span, offset] = [to, color].map((end) => end.map((channel, i) => channel - from[i]));
  const share = span.reduce((sum, channel, i) => sum + channel * offset[i], 0) / span.reduce((sum, channel) => sum + channel ** 2, 0);
  return share >= 0 && share <= 1 && mix(from, to, share).every((channel, i) => Math.abs(channel - color[i]) <= 1) ? share : null;
}

const looks = new Map(); // light and dark, projected or not

/** How the page looks now, at a place that may have left it meanwhile. */
export function lookOf(place) {
  const root = place?.isConnected ? place : document.body;
  const { colorScheme } = getComputedStyle(root);
  const isDark = colorScheme.includes("dark") && (!colorScheme.includes("light") || matchMedia("(prefers-color-scheme: dark)").matches);
  const key = `${isDark} ${Boolean(root.closest(".projected"))}`;
  if (!looks.has(key)) looks.set(key, Object.assign(new Look(root), { isDark }));
  return looks.get(key);
}

const context = document.createElement("canvas").getContext("2d");

class Look {
  // A colour may be `light-dark(…)`, which only an element resolves.
  constructor(root) {
    const probe = root.appendChild(document.createElement("span"));
    const style = getComputedStyle(probe);
    const roles = style.getPropertyValue("--lab-roles").trim().split(" ");
    for (const role of roles) {
      probe.style.color = `var(--lab-${role})`;
      this[role] = rgb(style.color);
    }
    const pairs = roles.map((role) => [role, style.getPropertyValue(`--lab-${role}`).match(/#\w{6}/g)?.map(channelsOf) ?? []]);
    this.pairs = Object.fromEntries(pairs); // of each role the colour on a light and on a dark ground
    // White is the ground, and the text on a full weight: the first role has it.
    this.darkened = new Map(pairs.filter(([, { length }]) => length).map(([, pair]) => pair.map(hexOf)).reverse());
    const size = (name) => parseFloat(style.getPropertyValue(`--lab-${name}-size`));
    this.size = Object.fromEntries(["axis", "label", "text", "word", "headline"].map((name) => [name, size(name)]));
    this.font = style.fontFamily;
    probe.remove();
    this.signedStops = [this["most-negative"], this.negative, this.zero, this.positive, this["most-positive"]];
  }

  signed(x, limit) { return along(this.signedStops, 0.5 + (0.5 * x) / (limit || 1)); }

  share(w) { return along([this.zero, this.weight], w); }

  /** Text on a colour. */
  on(color) { return inkOn(color); }

  /** Whether ink reads on a colour. */
  reads(color) { return contrast(this.ink, color) >= 4.5; }

  width(text, size, weight = 400) {
    context.font = `${weight} ${size}px ${this.font}`;
    return context.measureText(text).width;
  }

  /** A scale as Plotly takes it. */
  plotly(isShare) {
    const stops = isShare ? [this.zero, this.weight] : this.signedStops;
    return stops.map((color, i) => [i / (stops.length - 1), hexOf(color)]);
  }

  // A colour that Python chose for a light ground, as it is here.
  here(hex) {
    if (!this.isDark) return hex;
    if (!this.darkened.has(hex)) {
      const color = channelsOf(hex);
      const found = SCALES.map(([from, to]) => [from, to, shareOf(color, this.pairs[from][0], this.pairs[to][0])]).find(([, , share]) => share !== null);
      this.darkened.set(hex, found ? hexOf(mix(this.pairs[found[0]][1], this.pairs[found[1]][1], found[2])) : hex);
    }
    return this.darkened.get(hex);
  }

  /** A part of a figure with the colours of a dark page, if this is one. */
  themed(value, isColor = false) {
    if (!this.isDark) return value;
    if (typeof value === "string") return isColor && /^#[0-9a-f]{6}$/i.test(value) ? this.here(value.toLowerCase()) : value;
    if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
    if (Array.isArray(value)) return isColor || typeof value[0] === "object" ? value.map((part) => this.themed(part, isColor)) : value;
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, key === "z" || key === "meta" ? part : this.themed(part, /color/.test(key))]));
  }
}
