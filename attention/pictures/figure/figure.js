// Hands figures to Plotly in the page, updates them in place, and reports what was clicked or turned.
//
// It knows no server and no address: the `host` that it is drawn in does (in the Lab, pages/ui/figure/lab_figure.js).
//
// A figure is never rebuilt: Plotly.react into the same element keeps the zoom (layout.uirevision), and where
// only numbers have changed, the cells alone are painted anew.

import { controls, own, turning as inHand } from "./hand.js";
import { cellUnder, panelAt, pointAt, tell } from "./hover.js";
import { keyboard, placeCursor, untab } from "./keys.js";
import { line, turning } from "./line.js";
import { Exact } from "./live.js";
import { made } from "./made.js";
import { heightOf, paint } from "./map.js";
import { loadPlotly, unpack } from "./message.js";
import { Picture, Shown } from "./shown.js";
import { strip } from "./strip.js";
import { keepZooms, windowsToCut, zoomed } from "./zoom.js";

const REST = 120; // milliseconds in which another turn would only be slowed down by the rest of the page

// As many places as there are figures, each as high as its figure will be, so that nothing jumps.
function makeRoom({ root, pictures, figures }) {
  while (pictures.length < figures.length) {
    const picture = new Picture(made("div"));
    pictures.push(picture);
    root.append(picture.element);
  }
  while (pictures.length > figures.length) {
    const { element, resizes } = pictures.pop();
    resizes?.disconnect();
    if (element.data) window.Plotly.purge(element);
    element.remove();
  }
  figures.forEach(({ layout }, i) => {
    const { element } = pictures[i];
    element.style.minHeight = `${heightOf(layout, element)}px`;
  });
  // Python has kept as much free as the figures take where there is room enough.
  const lower = figures.some(({ layout }, i) => heightOf(layout, pictures[i].element) < layout.height);
  const kept = (root.getRootNode().host ?? root).closest(".stElementContainer");
  if (kept) kept.style.flexBasis = lower ? "auto" : "";
}

async function draw(shown, picture, figure, send) {
  const { element } = picture;
  const { alt, panels } = figure.layout.meta;
  element.style.height = `${heightOf(figure.layout, element)}px`; // before Plotly paints, so that nothing jumps
  element.setAttribute("role", panels.length ? "application" : "figure");
  element.setAttribute("aria-label", alt);
  picture.figure = figure;
  picture.cursor = null; // the keyboard goes on from the chosen cell
  const first = !element.data;
  await paint(shown, picture);
  untab(element);
  placeCursor(picture);
  if (first) listen(shown, picture, send);
}

// What a person can do with a map.
function listen(shown, picture, send) {
  const { element } = picture;
  if (picture.meta.panels.length) keyboard(shown, picture, (cell) => send("cell", { ...cell, ...picture.own }));
  picture.tip = made("div", { className: "tip", hidden: true });
  element.append(picture.tip);
  element.on("plotly_click", ({ event }) => {
    const { panels, step } = picture.meta;
    if (!panels.length) return;
    const point = pointAt(element, event);
    if (panels.length > 1 && !panelAt(panels, point.x, point.y)) return; // between the heads
    const { x, y } = panels.length > 1 ? point : cellUnder(shown, picture, point); // Python knows the heads
    send("cell", { x: Math.round(x), y: Math.round(y), step, ...picture.own });
  });
  element.on("plotly_hover", ({ points: [point] }) => tell(shown, picture, point));
  element.on("plotly_unhover", () => { picture.tip.hidden = true; });
  element.on("plotly_relayout", async () => {
    if (!zoomed(shown, picture)) return;
    const drawn = shown.pictures.filter(({ figure }) => figure);
    await Promise.all(drawn.map((other) => paint(shown, other)));
    cutAnew(shown, send);
    drawn.forEach(placeCursor);
  });
  element.on("plotly_afterplot", () => untab(element));
  picture.resizes = new ResizeObserver(async () => {
    if (!element.clientWidth || element.clientWidth === element._fullLayout.width) return;
    const height = `${heightOf(picture.figure.layout, element)}px`;
    Object.assign(element.style, { height, minHeight: height });
    await window.Plotly.Plots.resize(element);
    await paint(shown, picture);
    placeCursor(picture);
  });
  picture.resizes.observe(element);
}

// All windows in one message, or the second would take the place of the first.
function cutAnew(shown, send) {
  const windows = windowsToCut(shown);
  if (Object.keys(windows).length) send("cut", { windows });
}

// While a hand turns a knob: one frame, and never two at a time. What takes long to work out, the output of a long
// text, is painted in every second frame at most, and when the hand rests.
async function follow(shown, turned) {
  shown.exact.turn(turned);
  shown.turnedOn = true;
  if (shown.following) return;
  shown.following = true;
  const outputs = { took: 0, ended: 0 }; // in milliseconds
  while (shown.turnedOn) {
    shown.turnedOn = false;
    await new Promise(requestAnimationFrame);
    for (const picture of shown.pictures) {
      const step = picture.live;
      if (!step || !shown.exact.knows(step) || (step === "scores" && !("head" in turned))) continue;
      const isOutput = step.endsWith("output");
      const began = performance.now();
      if (isOutput && shown.turnedOn && began - outputs.ended < outputs.took) continue;
      await paint(shown, picture);
      if (isOutput) Object.assign(outputs, { took: performance.now() - began, ended: performance.now() });
    }
    const { chosen, exact } = shown;
    if (chosen && exact.knows(chosen.step)) shown.say(exact.numberAt(chosen.step, chosen.row, chosen.column));
    shown.frames += 1;
  }
  shown.following = false;
}

// Python has answered with the maps alone; when they are painted, and the hand rests, the page follows.
function askForTheRest(shown, host) {
  shown.wait();
  if (!shown.owes) return;
  shown.restTimer = setTimeout(() => {
    shown.owes = false;
    shown.asked = performance.now();
    host.askForRest();
  }, REST);
}

/**
 * What the figure is drawn in.
 * @typedef {object} Host
 * @property {(act: object, defaults: ?Object<string, string>, turned: object) => void} act something was turned or clicked:
 *   `act` has the `key` of the component and a `knob` or a `cell`; `turned` are the knobs that it turns, as far as the page knows
 * @property {(number: number) => boolean} isLate whether there was an act since the one that a message answers
 * @property {() => void} askForRest asks for what stands around the figure, which is painted
 */

/** Draws one message; `setTriggerValue` takes what is done with it. */
export default function render(message, host) {
  const { data, parentElement, setTriggerValue } = message;
  const part = (name) => parentElement.querySelector(`.${name}`);
  const root = part("figures");
  const shown = (root.shown ??= new Shown(root));
  const sent = unpack(data);
  // While this script is fetched, Streamlit lets several pictures wait for it, and brings an older one last now and then.
  const counted = sent.number !== null;
  if (sent.session === shown.session && (sent.act < shown.act || (counted && sent.number < shown.number))) return;
  if (shown.figures && counted && host.isLate(sent.number)) return; // a later answer is on its way
  Object.assign(shown, { act: sent.act, number: sent.number, session: sent.session });
  for (const name of ["strip", "hand", "answer"]) part(name).classList.toggle("large", sent.large);
  shown.figures = sent.figures;
  shown.exact = sent.live ? new Exact(sent.live, shown.exact) : null;
  shown.chosen = sent.line?.at;
  shown.say = (number) => turning(part("answer"), number);
  makeRoom(shown);
  keepZooms(shown);

  const send = (name, value) => {
    if (name === "cut") { // only this map is cut anew; what else is owed stays owed
      setTriggerValue(name, { ...value, at: Date.now() }); // `at`: the same twice is two acts
      return;
    }
    shown.wait();
    shown.owes = sent.rest;
    const { step, x: k, y: q } = value;
    const turned = name === "knob" ? value : sent.line?.steps.includes(step) ? { step, q, k } : {};
    host.act({ key: sent.key, [name]: value }, sent.defaults, turned);
  };
  const turn = (knob) => send("knob", knob);
  controls(part("hand"), sent.controls, {
    follow: (turned) => {
      if (!("head" in turned)) inHand(part("own"));
      if (shown.exact) follow(shown, turned);
    },
    release: turn,
  });
  own(part("own"), sent.own, turn);
  strip(part("strip"), sent.strip, turn);
  line(part("answer"), sent.line, turn);

  loadPlotly().then(async () => {
    for (const [i, figure] of sent.figures.entries()) {
      if (shown.figures !== sent.figures) return; // a newer message has come in the meantime
      await draw(shown, shown.pictures[i], figure, send);
    }
    cutAnew(shown, send);
    shown.painted = sent.figures;
    askForTheRest(shown, host);
  }).catch((error) => {
    shown.pictures = [];
    root.textContent = `The picture could not be drawn: ${error.message}. `
      + "The table below has the numbers; reload the page to try again.";
  });
}
