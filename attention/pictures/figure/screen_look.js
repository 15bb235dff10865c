// The colours and sizes of attention/pictures/look.py, as the page has them now: light or dark, on a screen or projected.

import { inkOn, luminance } from "./cells.js";

const ROLES = ["ground", "panel", "zero", "line", "edge", "ink", "soft", "dot", "weight", "on-weight", "query", "key", "value",
  "most-negative", "negative", "positive", "most-positive"];

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

const context = document.createElement("canvas").getContext("2d");

export class Look {
  // A colour may be `light-dark(…)`, which only an element resolves.
  constructor(root) {
    const probe = root.appendChild(document.createElement("span"));
    const style = getComputedStyle(probe);
    for (const role of ROLES) {
      probe.style.color = `var(--lab-${role})`;
      this[role] = rgb(style.color);
    }
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
    const hex = (color) => `#${color.map((channel) => Math.round(channel).toString(16).padStart(2, "0")).join("")}`;
    return stops.map((color, i) => [i / (stops.length - 1), hex(color)]);
  }
}
