// Paints the cells of a map anew without asking Plotly for the rest: where only numbers have changed, axes, titles
// and notes need not be laid out again, which is nine tenths of what Plotly.react costs.

import { png } from "./png.js";

const SHADES = 254; // with the first, and a gap, what a byte holds
const palettes = new Map(); // by colour scale: a gap, then red, green and blue of every shade

function palette(scale) {
  const key = JSON.stringify(scale);
  if (palettes.has(key)) return palettes.get(key);
  const stops = scale.map(([at, color]) => [at, [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16))]);
  const shades = new Uint8ClampedArray(3 * (SHADES + 2));
  for (let i = 0; i <= SHADES; i += 1) {
    const at = i / SHADES, above = Math.max(1, stops.findIndex(([stop]) => stop >= at));
    const [[low, from], [high, to]] = [stops[above - 1], stops[above]], share = (at - low) / (high - low);
    shades.set([0, 1, 2].map((channel) => from[channel] + share * (to[channel] - from[channel])), 3 * (i + 1));
  }
  palettes.set(key, new Uint8Array(shades.buffer));
  return palettes.get(key);
}

const shadeOf = (number, low, high) => 1 + Math.round(SHADES * Math.min(1, Math.max(0, (number - low) / (high - low))));

// White on dark cells, grey on light ones, by the same rule as Plotly's.
function ink(colors, shade) {
  const [red, green, blue] = colors.subarray(3 * shade, 3 * shade + 3);
  return (red * 299 + green * 587 + blue * 114) / 1000 < 128 ? "#fff" : "#444";
}

// Whether the map could be painted so; otherwise nothing has happened, and Plotly must do it.
export function repaint(element, { z, zmin, zmax, colorbar }) {
  const heat = element.data[0], group = element.querySelector(".heatmaplayer .hm"), image = group?.querySelector("image");
  if (!image?.style.imageRendering || heat.z.length !== z.length || heat.z[0].length !== z[0].length) return false;
  const colors = palette(heat.colorscale), rows = z.length, columns = z[0].length;
  const texts = heat.texttemplate ? group.querySelectorAll(".heatmap-label text") : [];
  const numbers = texts.length ? z.flatMap((row) => Array.from(row).filter(Number.isFinite)) : [];
  if (numbers.length !== texts.length) return false;

  const shades = new Uint8Array(rows * columns);
  let gaps = false;
  for (let row = 0; row < rows; row += 1) {
    const line = z[row];
    for (let column = 0; column < columns; column += 1) {
      const number = line[column]; // a gap stays without colour
      if (number === number) shades[row * columns + column] = shadeOf(number, zmin, zmax);
      else gaps = true;
    }
  }
  image.setAttribute("href", png(shades, columns, colors));
  texts.forEach((text, i) => {
    text.textContent = numbers[i].toFixed(2);
    text.style.fill = ink(colors, shadeOf(numbers[i], zmin, zmax));
  });
  element.querySelectorAll(".colorbar .cbaxis text").forEach((text, i) => { text.textContent = colorbar.ticktext[i]; });
  // What Plotly's hover, and its next drawing after a zoom, read.
  const [{ trace }] = element.calcdata[0];
  // There a gap is undefined: Plotly would draw a NaN in a colour, and say it.
  element.calcdata[0][0].z = gaps ? z.map((row) => Array.from(row, (number) => (number === number ? number : undefined))) : z;
  for (const known of [heat, trace]) {
    Object.assign(known, { z, zmin, zmax });
    Object.assign(known.colorbar, { tickvals: colorbar.tickvals, ticktext: colorbar.ticktext });
  }
  return true;
}
