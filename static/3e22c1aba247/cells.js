// Paints the cells of a map anew without asking Plotly for the rest: where only numbers have changed, axes, titles
// and notes need not be laid out again, which is nine tenths of what Plotly.react costs.

import { png } from "./png.js";

const SHADES = 254; // with the first, and a gap, what a byte holds
const palettes = new Map(); // by colour scale: a gap, then red, green and blue of every shade

const between = (part) => Math.min(1, Math.max(0, part));

// Even steps from the lower end of the colours to the upper one; or over powers of ten, the first of them for 0.
function palette({ colorscale, meta }, most) {
  const floor = meta?.floor;
  const key = JSON.stringify([colorscale, floor && most]);
  if (palettes.has(key)) return palettes.get(key);
  const parts = (color) => [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
  const stops = colorscale.map(([at, color]) => [at, parts(color)]);
  const shades = new Uint8ClampedArray(3 * (SHADES + 2));
  for (let i = 0; i <= SHADES; i += 1) {
    const at = floor ? (i && (floor / most) ** (1 - (i - 1) / (SHADES - 1))) : i / SHADES;
    const above = Math.max(1, stops.findIndex(([stop]) => stop >= at));
    const [[low, from], [high, to]] = [stops[above - 1], stops[above]];
    const share = (at - low) / (high - low);
    shades.set(from.map((part, channel) => part + share * (to[channel] - part)), 3 * (i + 1));
  }
  palettes.set(key, new Uint8Array(shades.buffer));
  return palettes.get(key);
}

// Which of the shades a number has, between the two ends of the colours.
function shading({ meta }, low, high) {
  const floor = meta?.floor;
  if (!floor) return (number) => 1 + Math.round(SHADES * between((number - low) / (high - low)));
  const span = Math.log(high / floor);
  return (number) => (number > 0 ? 2 + Math.round((SHADES - 1) * between(Math.log(number / floor) / span)) : 1);
}

// How light a colour is, by WCAG: red, green and blue from 0 to 255.
function luminance(color) {
  const light = (part) => (part <= 10.3 ? part / 3294.6 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = color.map(light);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

const LIGHT = luminance([255, 255, 255]);
const DARK = luminance([17, 17, 17]);

// White or near-black, whichever stands out more; on no colour is that less than 4.3 : 1. Plotly has another rule.
function ink(colors, shade) {
  const ground = luminance(Array.from(colors.subarray(3 * shade, 3 * shade + 3))) + 0.05;
  return (LIGHT + 0.05) / ground >= ground / (DARK + 0.05) ? "#ffffff" : "#111111";
}

// Gives the numbers in the cells their colour, after Plotly has drawn them in its own.
export function inked(element) {
  const [heat] = element.data;
  if (!heat.texttemplate) return;
  const colors = palette(heat, heat.zmax);
  const shadeOf = shading(heat, heat.zmin, heat.zmax);
  for (const text of element.querySelectorAll(".heatmaplayer .heatmap-label text")) {
    text.style.fill = ink(colors, shadeOf(text.__data__.z));
  }
}

// With two decimals, as Plotly writes "%{z:.2f}"; what rounds to 0 has no sign.
const written = (number) => number.toFixed(2).replace(/^-(?=0\.00$)/, "");

// As Plotly writes a text without tags.
function say(label, text) {
  label.textContent = text;
  label.setAttribute("data-unformatted", text);
}

// Which of some cells Plotly writes a number in: those whose middle lies in the part of the axis that is seen.
function seen(axis, first, size, count) {
  return Array.from({ length: count }, (_, i) => i).filter((i) => {
    const pixel = Math.round(axis.c2p(first + i * size));
    return pixel >= 0 && pixel <= axis._length;
  });
}

// Every cell as one of the shades; a gap stays without colour, which is 0. And whether there are gaps.
function shaded(z, shadeOf) {
  const columns = z[0].length;
  const shades = new Uint8Array(z.length * columns);
  let gaps = false;
  z.forEach((line, row) => {
    for (let column = 0; column < columns; column += 1) {
      const number = line[column];
      if (Number.isNaN(number)) gaps = true;
      else shades[row * columns + column] = shadeOf(number);
    }
  });
  return { shades, gaps };
}

// Whether the map could be painted so; otherwise nothing has happened, and Plotly must do it. It knows what Plotly 4
// keeps of a heatmap; should another version keep something else, `paint` takes what this throws, and lets Plotly draw.
export function repaint(element, { z, zmin, zmax, colorbar, x0 = 0, dx = 1, y0 = 0, dy = 1 }) {
  const [heat] = element.data;
  const group = element.querySelector(".heatmaplayer .hm");
  const image = group?.querySelector("image");
  if (!image?.style.imageRendering) return false;
  const columns = z[0].length;
  const texts = heat.texttemplate ? group.querySelectorAll(".heatmap-label text") : [];
  const numbers = [];
  if (texts.length) {
    const { xaxis, yaxis } = element._fullLayout;
    const across = seen(xaxis, x0, dx, columns);
    for (const row of seen(yaxis, y0, dy, z.length)) {
      numbers.push(...across.map((column) => z[row][column]).filter(Number.isFinite));
    }
  }
  if (numbers.length !== texts.length) return false;

  const colors = palette(heat, zmax);
  const shadeOf = shading(heat, zmin, zmax);
  const { shades, gaps } = shaded(z, shadeOf);
  image.setAttribute("href", png(shades, columns, colors));
  texts.forEach((text, i) => {
    text.textContent = written(numbers[i]);
    text.style.fill = ink(colors, shadeOf(numbers[i]));
  });
  if (colorbar) {
    element.querySelectorAll(".colorbar .cbaxis text").forEach((text, i) => say(text, colorbar.ticktext[i]));
  }
  // What Plotly's hover, and its next drawing after a zoom, read. There a gap is undefined: Plotly would draw a NaN in
  // a colour, and say it.
  const [[cells]] = element.calcdata;
  const known = (number) => (Number.isNaN(number) ? undefined : number);
  cells.z = gaps ? z.map((row) => Array.from(row, known)) : z;
  for (const trace of [heat, cells.trace]) {
    Object.assign(trace, { z, zmin, zmax });
    if (!colorbar) continue;
    trace.colorbar.tickvals = colorbar.tickvals;
    trace.colorbar.ticktext = colorbar.ticktext;
  }
  return true;
}
