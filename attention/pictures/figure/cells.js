// Repaints the cells of a map without Plotly: if only numbers changed, axes, titles and notes
// need no new layout, which is nine tenths of the time of Plotly.react.

import { pngUrl } from "./png.js";

const SHADES = 254; // with the first shade and a gap, 256 values
const palettes = new Map(); // by colour scale: red, green and blue of a gap and of every shade

const clamp = (fraction) => Math.min(1, Math.max(0, fraction));

// Linear shades from the lower to the upper end of the range; on the logarithmic scale, the first shade is for 0.
function palette({ colorscale, meta }, maximum) {
  const floor = meta?.floor;
  const key = JSON.stringify([colorscale, floor && maximum]);
  if (palettes.has(key)) return palettes.get(key);
  const channels = (color) => [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
  const stops = colorscale.map(([position, color]) => [position, channels(color)]);
  const shades = new Uint8ClampedArray(3 * (SHADES + 2));
  for (let i = 0; i <= SHADES; i += 1) {
    const position = floor ? (i && (floor / maximum) ** (1 - (i - 1) / (SHADES - 1))) : i / SHADES;
    const above = Math.max(1, stops.findIndex(([stop]) => stop >= position));
    const [[low, from], [high, to]] = [stops[above - 1], stops[above]];
    const fraction = (position - low) / (high - low);
    shades.set(from.map((value, channel) => value + fraction * (to[channel] - value)), 3 * (i + 1));
  }
  palettes.set(key, new Uint8Array(shades.buffer));
  return palettes.get(key);
}

// A function that returns the shade of a number within a range.
function shadeFunction({ meta }, low, high) {
  const floor = meta?.floor;
  if (!floor) return (number) => 1 + Math.round(SHADES * clamp((number - low) / (high - low)));
  const span = Math.log(high / floor);
  return (number) => (number > 0 ? 2 + Math.round((SHADES - 1) * clamp(Math.log(number / floor) / span)) : 1);
}

// The relative luminance of a colour by WCAG: red, green and blue from 0 to 255.
export function luminance(color) {
  const linear = (channel) => (channel <= 10.3 ? channel / 3294.6 : ((channel / 255 + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = color.map(linear);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

const WHITE = luminance([255, 255, 255]);
const BLACK = luminance([17, 17, 17]);

// White or near-black text, whichever has more contrast; on every colour at least 4.3 : 1. Plotly has another rule.
export function inkOn(color) {
  const background = luminance(color) + 0.05;
  return (WHITE + 0.05) / background >= background / (BLACK + 0.05) ? "#ffffff" : "#111111";
}

const textColor = (colors, shade) => inkOn(Array.from(colors.subarray(3 * shade, 3 * shade + 3)));

// Sets the colour of the numbers in cells, after Plotly has drawn them in its own colours.
export function colorNumbers(element) {
  const [heat] = element.data;
  if (!heat.texttemplate) return;
  const colors = palette(heat, heat.zmax);
  const shadeOf = shadeFunction(heat, heat.zmin, heat.zmax);
  for (const text of element.querySelectorAll(".heatmaplayer .heatmap-label text")) {
    text.style.fill = textColor(colors, shadeOf(text.__data__.z));
  }
}

// Two decimals, as Plotly writes "%{z:.2f}"; a number that rounds to 0 has no sign.
const formatCell = (number) => number.toFixed(2).replace(/^-(?=0\.00$)/, "");

// Sets a text as Plotly does for a text without tags.
export function setText(label, text) {
  label.textContent = text;
  label.setAttribute("data-unformatted", text);
}

// The cells in which Plotly writes a number: those whose centre lies in the visible part of the axis.
function visibleCells(axis, first, size, count) {
  return Array.from({ length: count }, (_, i) => i).filter((i) => {
    const pixel = Math.round(axis.c2p(first + i * size));
    return pixel >= 0 && pixel <= axis._length;
  });
}

// The shade of every cell (0 for a gap), and whether there are gaps.
function toShades(z, shadeOf) {
  const columns = z[0].length;
  const shades = new Uint8Array(z.length * columns);
  let gaps = false;
  z.forEach((numbers, row) => {
    for (let column = 0; column < columns; column += 1) {
      const number = numbers[column];
      if (Number.isNaN(number)) gaps = true;
      else shades[row * columns + column] = shadeOf(number);
    }
  });
  return { shades, gaps };
}

// Paints cells on a canvas, a pixel each, which its style enlarges.
export function paintPixels(canvas, heat) {
  const { z, zmin, zmax } = heat;
  const colors = palette(heat, zmax);
  const { shades } = toShades(z, shadeFunction(heat, zmin, zmax));
  const image = new ImageData(z[0].length, z.length);
  shades.forEach((shade, i) => {
    for (let channel = 0; channel < 3; channel += 1) image.data[4 * i + channel] = colors[3 * shade + channel];
    image.data[4 * i + 3] = shade && 255;
  });
  if (canvas.width !== image.width || canvas.height !== image.height) Object.assign(canvas, { width: image.width, height: image.height });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// Repaints the cells; returns false, without changes, if Plotly must draw the map. This relies on Plotly 4's internal
// state of a heatmap; if another version throws here, `paint` lets Plotly draw.
export function repaint(element, { z, zmin, zmax, colorbar, x0 = 0, dx = 1, y0 = 0, dy = 1 }, index = 0) {
  const heat = element.data[index];
  const { xaxis: x = "x", yaxis: y = "y" } = heat;
  const group = element.querySelector(`.${x}${y} .heatmaplayer .hm`);
  const image = group?.querySelector("image");
  if (!image?.style.imageRendering) return false;
  const columns = z[0].length;
  const texts = heat.texttemplate ? group.querySelectorAll(".heatmap-label text") : [];
  const numbers = [];
  if (texts.length) {
    const { xaxis, yaxis } = element._fullLayout;
    const across = visibleCells(xaxis, x0, dx, columns);
    for (const row of visibleCells(yaxis, y0, dy, z.length)) {
      numbers.push(...across.map((column) => z[row][column]).filter(Number.isFinite));
    }
  }
  if (numbers.length !== texts.length) return false;

  const colors = palette(heat, zmax);
  const shadeOf = shadeFunction(heat, zmin, zmax);
  const { shades, gaps } = toShades(z, shadeOf);
  image.setAttribute("href", pngUrl(shades, columns, colors));
  texts.forEach((text, i) => {
    text.textContent = formatCell(numbers[i]);
    text.style.fill = textColor(colors, shadeOf(numbers[i]));
  });
  if (colorbar) {
    element.querySelectorAll(".colorbar .cbaxis text").forEach((text, i) => setText(text, colorbar.ticktext[i]));
  }
  // The data for Plotly's hover and its next drawing after a zoom. Here a gap is undefined: Plotly would draw a NaN in
  // a colour and show it in the hover.
  const [cells] = element.calcdata[index];
  const gapToUndefined = (number) => (Number.isNaN(number) ? undefined : number);
  cells.z = gaps ? z.map((row) => Array.from(row, gapToUndefined)) : z;
  for (const trace of [heat, cells.trace]) {
    Object.assign(trace, { z, zmin, zmax });
    if (!colorbar) continue;
    trace.colorbar.tickvals = colorbar.tickvals;
    trace.colorbar.ticktext = colorbar.ticktext;
  }
  return true;
}
