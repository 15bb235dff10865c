// Hands figures to Plotly in the page, updates them in place, and tells Python which cell was clicked.
//
// A figure is never rebuilt: Plotly.react into the same element keeps the zoom (layout.uirevision), and where
// only numbers have changed, the cells alone are painted anew.

import { write } from "./address.js";
import { sending } from "./history.js";
import { controls } from "./hand.js";
import { keyboard, place, untab } from "./keys.js";
import { line, turning } from "./line.js";
import { Exact } from "./live.js";
import { cellUnder, cutAnew, keepZooms, paint, zoomed } from "./map.js";
import { loadPlotly, unpack } from "./message.js";
import { strip } from "./strip.js";

const REST = 120; // milliseconds in which another turn would only be slowed down by the rest of the page

// Where the block under the pointer has its number, said as a hover says it.
function tell(element, root, point) {
  const { x, y, z, block, head } = cellUnder(element, root, point);
  if (!block) return;
  const { meta, xaxis, yaxis } = element.figure.layout, name = (axis, own, i) => (own ?? axis).labelalias?.[i] ?? i;
  const number = Number.isFinite(z) ? Number(z.toPrecision(9)) : "hidden by the mask";
  const where = [`${meta.axes[0]} ${name(yaxis, meta.rows, y)}`, `${meta.axes[1]} ${name(xaxis, meta.columns, x)}`];
  element.tip.innerHTML = [`${head === undefined ? "" : `H${head}, `}largest of ${block}`, ...where, `<b>${number}</b>`].join("<br>");
  element.tip.hidden = false;
}

async function draw(element, figure, root, send) {
  element.style.height = `${figure.layout.height}px`; // before Plotly paints, so that nothing jumps
  const { alt, panels } = figure.layout.meta;
  element.setAttribute("role", panels?.length ? "application" : "figure");
  element.setAttribute("aria-label", alt);
  element.figure = figure;
  element.cursor = null; // the keyboard goes on from the chosen cell
  const first = !element.data;
  await paint(element, root);
  untab(element);
  place(element);
  if (!first) return;
  if (panels?.length) keyboard(element, root, (cell) => send("cell", cell));
  element.tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  element.append(element.tip);
  element.on("plotly_click", ({ points }) => {
    const { panels, step } = element.figure.layout.meta;
    if (!panels.length) return;
    const { x, y } = panels.length > 1 ? points[0] : cellUnder(element, root, points[0]);
    send("cell", { x: Math.round(x), y: Math.round(y), step });
  });
  element.on("plotly_hover", ({ points }) => tell(element, root, points[0]));
  element.on("plotly_unhover", () => { element.tip.hidden = true; });
  element.on("plotly_relayout", async () => {
    if (!(await zoomed(element, root))) return;
    cutAnew(root, send);
    for (const other of root.children) place(other);
  });
  element.on("plotly_afterplot", () => untab(element));
  element.resizes = new ResizeObserver(() => {
    if (element.clientWidth && element.clientWidth !== element._fullLayout.width) window.Plotly.Plots.resize(element).then(() => paint(element, root)).then(() => place(element));
  });
  element.resizes.observe(element);
}

// While a hand turns a knob: one frame, and never two at a time. What takes long to work out, the output of a long
// text, is painted in every second frame at most, and when the hand rests.
async function follow(root, turned) {
  root.exact.turn(turned);
  if (root.painting) { root.waiting = true; return; }
  root.painting = true;
  let slow = 0, rest = 0; // milliseconds that the outputs took, and when they took them
  do {
    root.waiting = false;
    await new Promise(requestAnimationFrame);
    for (const element of root.children) {
      const step = element.figure.data[0].live;
      if (!step || !root.exact.knows(step) || (step === "scores" && !("head" in turned))) continue;
      const began = performance.now();
      if (step.endsWith("output") && root.waiting && began - rest < slow) continue;
      await paint(element, root);
      if (step.endsWith("output")) [slow, rest] = [performance.now() - began, performance.now()];
    }
    const { at } = root;
    if (at && root.exact.knows(at.step)) root.say(root.exact.numberAt(at.step, at.row, at.column));
    root.frames = (root.frames ?? 0) + 1;
  } while (root.waiting);
  root.painting = false;
}

export default function render(message) {
  const { data, parentElement, setTriggerValue } = message;
  const part = (name) => parentElement.querySelector(`.${name}`), root = part("figures");
  const { plotly: url, figures, live, controls: row, strip: steps, line: chosen, defaults, rest, large } = unpack(data);
  for (const name of ["strip", "hand", "answer"]) part(name).classList.toggle("large", large);
  while (root.children.length < figures.length) root.append(document.createElement("div"));
  while (root.children.length > figures.length) {
    const last = root.lastElementChild;
    last.resizes?.disconnect();
    if (last.data) window.Plotly.purge(last);
    last.remove();
  }
  figures.forEach((figure, i) => { root.children[i].style.minHeight = `${figure.layout.height}px`; });
  root.figures = figures;
  keepZooms(root);
  root.exact = live ? new Exact(live, root.exact) : null;
  root.at = chosen?.at;
  root.say = (number) => turning(part("answer"), number);
  const send = (name, value) => {
    setTriggerValue(name, { ...value, at: Date.now() }); // `at`: the same twice is two acts
    if (name === "cut") return; // only this map is cut anew; what else is owed stays owed
    clearTimeout(root.rest);
    root.owes = rest;
    sending();
    if (name === "knob") write(defaults, value);
    else if (chosen?.steps.includes(value.step)) write(defaults, { step: value.step, q: value.y, k: value.x });
  };
  const turn = (knob) => send("knob", knob);
  controls(part("hand"), row, { follow: (turned) => root.exact && follow(root, turned), release: turn });
  strip(part("strip"), steps, turn);
  line(part("answer"), chosen, turn);
  // What was turned last is undone; the rest of the page needs not follow it any more. Where Python has not answered
  // yet, what it says then is what it said before, and Streamlit does not bring that here once more.
  if (!root.back) window.addEventListener("goback", () => root.back());
  root.back = () => {
    clearTimeout(root.rest);
    root.owes = false;
    render(message);
  };
  loadPlotly(url).then(async () => {
    for (const [i, figure] of figures.entries()) {
      if (root.figures !== figures) return; // a newer message has come in the meantime
      await draw(root.children[i], figure, root, send);
    }
    cutAnew(root, send);
    root.painted = figures;
    // Python has answered with these figures alone; now that they are painted, and the hand rests, the page follows.
    clearTimeout(root.rest);
    if (root.owes) root.rest = setTimeout(() => {
      Object.assign(root, { owes: false, asked: performance.now() });
      window.dispatchEvent(new Event("runagain")); // link.js hears it; what this component asks for is a run of its fragment alone
      sending();
    }, REST);
  }).catch((error) => { root.textContent = `The picture could not be drawn: ${error.message}. The table below has the numbers; reload the page to try again.`; });
}
