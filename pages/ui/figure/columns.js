// Gives a painted map another number of columns, as a new d_model does to the output. Only the ticks under the map and a
// few words change by that; Plotly would lay the whole map out anew, which takes as long as all the rest of such a step.

import { say } from "./cells.js";

// A layout, and apart from it what follows from the number of its columns.
export function apart({ uirevision, shapes = [], title = {}, xaxis = {}, ...rest }) {
  const { range, tickvals, ticktext, labelalias, ...axis } = xaxis, { text, ...subtitle } = title.subtitle ?? {};
  const across = { uirevision, text, range, tickvals, ticktext, labelalias, marks: shapes.map(({ x0, x1 }) => [x0, x1]) };
  const marks = shapes.map(({ x0, x1, ...mark }) => mark);
  return [{ ...rest, title: { ...title, subtitle }, xaxis: axis, shapes: marks }, across];
}

// What a double click goes back to. Plotly by itself would know the range of the first map that it drew here.
export const unzoomed = (axis, [_rangeInitial0, _rangeInitial1]) => Object.assign(axis, { _rangeInitial0, _rangeInitial1 });

const spans = (shapes, [left, right]) => shapes.every(({ x0, x1 }) => x0 === left && x1 === right);

// Whether that could be done; otherwise nothing has happened, and Plotly must do it. Its cells are not: they are `repaint`'s.
export function widen(element, layout) {
  const { shapes = [], title, xaxis, uirevision } = layout, { range, tickvals, ticktext, labelalias } = xaxis, full = element._fullLayout;
  const ticks = [...element.querySelectorAll(".xaxislayer-above .xtick")].sort((one, other) => one.__data__.x - other.__data__.x);
  const subtitle = element.querySelector(".gtitle-subtitle");
  const whole = ({ range: [left, right], _rangeInitial0, _rangeInitial1 }) => left === _rangeInitial0 && right === _rangeInitial1;
  // Zoomed; upright words; more ticks or fewer; a cell or a column that is marked; words with tags in them.
  if (Object.keys(full._preGUI).length || !whole(full.xaxis) || xaxis.tickangle || ticks.length !== tickvals.length) return false;
  if (!spans(full.shapes, full.xaxis.range) || !spans(shapes, range)) return false;
  if (!subtitle || subtitle.childElementCount || /[<&]/.test(title.subtitle.text)) return false;

  // What Plotly reads when it hovers, zooms or draws again.
  element.layout = layout;
  for (const known of [full, full.xaxis, full.yaxis]) known.uirevision = uirevision;
  full.title.subtitle.text = title.subtitle.text;
  full.shapes.forEach((shape, i) => Object.assign(shape, { x0: range[0], x1: range[1], _input: shapes[i] }));
  full.yaxis._input = layout.yaxis;
  Object.assign(full.xaxis, { _input: xaxis, tickvals, ticktext, labelalias });
  for (const known of ["range", "_r", "_rl"]) full.xaxis[known] = [...range];
  unzoomed(full.xaxis, range);
  full.xaxis.setScale();

  // What is seen.
  ticks.forEach((tick, i) => {
    say(tick.firstChild, ticktext[i]);
    tick.firstChild.setAttribute("transform", `translate(${full.xaxis._offset + full.xaxis.l2p(tickvals[i])},0)`);
  });
  say(subtitle, title.subtitle.text);
  return true;
}
