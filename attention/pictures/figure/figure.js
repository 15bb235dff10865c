// Draws figures with Plotly, updates them in place, and reports clicks and changed knobs.
//
// It knows neither server nor address: its `host` does (in the Lab, pages/ui/figure/lab_figure.js).
//
// A figure is never rebuilt: Plotly.react into the same element keeps the zoom (layout.uirevision). If
// only numbers changed, only the cells are repainted.

import { drawControls, drawOverride, markOverridden } from "./controls.js";
import { isMosaic, panelAt, pointAt, showTip } from "./hover.js";
import { describeKeys, enableKeyboard, isClickable, placeCursor } from "./keyboard.js";
import { chosenCell, hideLinked, showLinked } from "./linked_cells.js";
import { setHeat } from "./picture_grid.js";
import { drawLine, showLiveNumber } from "./cell_line.js";
import { LiveLayer } from "./live_layer.js";
import { create } from "./elements.js";
import { figureHeight, figureWidth, paint } from "./map.js";
import { loadPlotly, unpack } from "./message.js";
import { FigureState, Picture } from "./figure_state.js";
import { drawStrip } from "./step_strip.js";
import { dropUnusedZooms, recordZoom, windowsToRequest } from "./zoom.js";

const BELOW_DELAY = 100; // milliseconds
const REST_DELAY = 120; // milliseconds before the rest of the page is requested, which would slow down another change

// Creates an element for each figure with the figure's height, so that nothing moves later.
function reserveSpace({ root, pictures, figures }) {
  while (pictures.length < figures.length) {
    const picture = new Picture(create("div"));
    pictures.push(picture);
    root.append(picture.element);
  }
  while (pictures.length > figures.length) {
    const { element, resizeObserver } = pictures.pop();
    resizeObserver?.disconnect();
    if (element.data) window.Plotly.purge(element);
    element.remove();
  }
  figures.forEach(({ layout }, i) => {
    const { element } = pictures[i];
    element.style.minHeight = `${figureHeight(layout, element)}px`;
  });
  // Python reserved the height of figures at their full width.
  const isLower = figures.some(({ layout }, i) => figureHeight(layout, pictures[i].element) < layout.height);
  const reserved = (root.getRootNode().host ?? root).closest(".stElementContainer");
  if (reserved) reserved.style.flexBasis = isLower ? "auto" : "";
}

async function draw(state, picture, figure, send) {
  const { element } = picture;
  const { alt } = figure.layout.meta;
  element.style.height = `${figureHeight(figure.layout, element)}px`; // before Plotly paints, so that nothing moves
  element.classList.toggle("over-picture", Boolean(figure.layout.meta.grid));
  element.setAttribute("role", isClickable(figure.layout.meta) ? "application" : "figure");
  element.setAttribute("aria-label", alt);
  picture.figure = figure;
  describeKeys(picture);
  picture.cursor = null; // the keyboard starts at the chosen cell
  const isFirst = !element.data;
  await paint(state, picture);
  placeCursor(picture);
  if (isFirst) listen(state, picture, send);
}

// Handles the events of a map.
function listen(state, picture, send) {
  const { element } = picture;
  if (isClickable(picture.meta)) enableKeyboard(state, picture, (cell) => send("cell", { ...cell, ...picture.fixedHead }));
  picture.tip = create("div", { className: "tip", hidden: true });
  element.append(picture.tip);
  element.on("plotly_click", ({ event }) => {
    const { panels, step } = picture.meta;
    if (!isClickable(picture.meta)) return;
    const point = pointAt(element, event);
    const isOfHeads = isMosaic(picture.meta);
    if (isOfHeads && !panelAt(panels, point.x, point.y)) return; // between the heads
    const isDouble = event.detail === 2; // as the system counts; a tap is reported twice, without and with its count
    const cell = isOfHeads ? point : chosenCell(state, picture, point, isDouble); // in a mosaic, Python finds head and cell
    if (cell) send("cell", { x: Math.round(cell.x), y: Math.round(cell.y), step, ...picture.fixedHead });
  });
  element.on("plotly_hover", ({ points: [point], event }) => {
    showTip(state, picture, point, event);
    showLinked(state, picture, point);
  });
  element.on("plotly_unhover", () => {
    picture.tip.hidden = true;
    hideLinked(state);
  });
  picture.zoomed = async (isEnded) => {
    const drawn = state.pictures.filter(({ figure }) => figure);
    await Promise.all(drawn.map((other) => paint(state, other)));
    if (isEnded) requestWindows(state, send);
    drawn.forEach(placeCursor);
  };
  element.on("plotly_relayout", () => { if (recordZoom(state, picture)) picture.zoomed(true); });
  picture.resizeObserver = new ResizeObserver(async () => {
    const { layout } = picture.figure;
    if (!element.clientWidth || figureWidth(layout, element) === element._fullLayout.width) return;
    const height = `${figureHeight(layout, element)}px`;
    Object.assign(element.style, { height, minHeight: height });
    await window.Plotly.Plots.resize(element); // without it, Plotly leaves the colour bar where it was
    await paint(state, picture);
    placeCursor(picture);
  });
  picture.resizeObserver.observe(element);
}

// Requests all windows in one message, because a second message would replace the first.
function requestWindows(state, send) {
  const windows = windowsToRequest(state);
  if (Object.keys(windows).length) send("cut", { windows });
}

// Repaints while the user changes a knob, one frame at a time. What takes long to compute, the output of a long
// text, is painted at most in every second frame, and at the end.
async function animate(state, knobs) {
  state.liveLayer.update(knobs);
  state.hasNewInput = true;
  if (state.animating) return;
  state.animating = true;
  const outputs = { duration: 0, ended: 0 }; // in milliseconds
  while (state.hasNewInput) {
    state.hasNewInput = false;
    await new Promise(requestAnimationFrame);
    if (!state.liveLayer?.changed) continue; // a message arrived meanwhile: it has these numbers, and their arithmetic
    for (const picture of state.pictures) {
      if (isBelow(picture)) continue;
      const step = picture.live;
      if (!step || !state.liveLayer.canCompute(step) || (step === "scores" && !("head" in knobs))) continue;
      const isOutput = step.endsWith("output");
      const began = performance.now();
      if (isOutput && state.hasNewInput && began - outputs.ended < outputs.duration) continue;
      await paint(state, picture);
      if (isOutput) Object.assign(outputs, { duration: performance.now() - began, ended: performance.now() });
    }
    const { line, liveLayer } = state;
    if (line && liveLayer.canCompute(line.step)) state.showNumber(liveLayer.numberAt(line.step, ...line.sides.map(({ value }) => value)));
    state.frames += 1;
  }
  state.animating = false;
  clearTimeout(state.belowTimer);
  state.belowTimer = setTimeout(() => paintBelow(state), BELOW_DELAY);
}

// Whether a map is below the screen: nobody sees it follow, and it would slow down those that are seen.
const isBelow = ({ element }) => element.getBoundingClientRect().top > innerHeight;

// Paints these when the knob rests, unless a message has come meanwhile.
async function paintBelow(state) {
  for (const picture of state.pictures) {
    if (state.animating || !state.liveLayer?.changed) return;
    if (picture.live && isBelow(picture) && state.liveLayer.canCompute(picture.live)) await paint(state, picture);
  }
}

// After the next frame is painted, or soon where none is.
const painted = () => new Promise((go) => { requestAnimationFrame(() => setTimeout(go)); setTimeout(go, BELOW_DELAY); });

// Requests the rest of the page, after Python answered with the maps alone, they are painted, and no change follows.
function requestRest(state, host) {
  state.cancelRest();
  if (!state.restPending) return;
  state.restTimer = setTimeout(() => {
    state.restPending = false;
    state.restRequestedAt = performance.now();
    host.requestRest();
  }, REST_DELAY);
}

// Draws everything on the page again in the colours that it has now.
function repaintAll() {
  for (const { figureState: state } of document.querySelectorAll(".figures")) state?.pictures.forEach((picture) => picture.figure && paint(state, picture));
  for (const { firstScreen } of document.querySelectorAll(".screen")) firstScreen?.layout();
}
matchMedia("print").addEventListener("change", repaintAll); // paper is light
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTimeout(repaintAll, 60)); // after Streamlit's own theme

/**
 * The environment of the figure.
 * @typedef {object} Host
 * @property {(act: object, defaults: ?Object<string, string>, knobs: object) => void} act reports a changed knob or a click:
 *   `act` has the `key` of the component and a `knob` or a `cell`; `knobs` are the knobs that it changes, as far as the page knows
 * @property {(number: number) => boolean} isLate whether there was a user action since the one that a message answers
 * @property {() => void} requestRest requests what surrounds the figure, after the figure is painted
 * @property {Function} [FirstScreen] the class that draws a first screen, where there is one
 */

// The knobs that a click on a cell changes, as `position_knobs` of attention/pictures/view.py.
function knobsOfCell(figures, { step, x, y }) {
  const [row, column] = figures.find(({ layout }) => layout.meta.step === step)?.layout.meta.axes ?? [];
  return { step, [row === "key" ? "k" : "q"]: y, [column === "key" ? "k" : "column"]: x };
}

// The layout that has the picture of the first screen: of two states that of the shown one, of their difference A's.
function pictureOf({ figures, screen }) {
  const state = screen?.compared ? `${screen.compared.shown === "B" ? "B" : "A"}: ` : "";
  return figures.find(({ layout: { meta } }) => meta.grid && meta.alt.startsWith(state))?.layout;
}

/** Draws one message; `setTriggerValue` sends requests of the figure. */
export default function render(message, host) {
  const { data, parentElement, setTriggerValue } = message;
  const part = (name) => parentElement.querySelector(`.${name}`);
  const root = part("figures");
  const state = (root.figureState ??= new FigureState(root));
  const sent = unpack(data);
  // While this script loads, Streamlit queues several messages, and occasionally delivers an older one last.
  const isNumbered = sent.act_number !== null;
  const isOlder = sent.film_frame < state.filmFrame || (isNumbered && sent.act_number < state.actNumber);
  if (sent.session === state.session && isOlder) return;
  if (state.figures && isNumbered && host.isLate(sent.act_number)) return; // a later answer is on its way
  Object.assign(state, { filmFrame: sent.film_frame, actNumber: sent.act_number, session: sent.session });
  for (const name of ["strip", "controls", "answer-line"]) part(name).classList.toggle("large", sent.large);
  state.figures = sent.figures;
  state.liveLayer = sent.live ? new LiveLayer(sent.live, state.liveLayer) : null;
  state.line = sent.line;
  state.showNumber = (number) => showLiveNumber(part("answer-line"), number);
  reserveSpace(state);
  dropUnusedZooms(state);

  const send = (name, value) => {
    if (name === "cut") { // pools only this map again; a pending request for the rest stays pending
      setTriggerValue(name, { ...value, at: Date.now() }); // `at` makes equal requests distinct
      return;
    }
    state.cancelRest();
    state.restPending = sent.defer_rest;
    const knobs = name === "knob" ? value : sent.line?.steps.includes(value.step) ? knobsOfCell(sent.figures, value) : {};
    host.act({ key: sent.key, [name]: value }, sent.defaults, knobs);
  };
  const setKnobs = (knobs) => send("knob", knobs);
  drawControls(part("controls"), sent.controls, {
    input: (knobs) => {
      if ("heat" in knobs) {
        setHeat(state, knobs.heat);
        return;
      }
      if (!("head" in knobs)) markOverridden(part("override"));
      if (!state.liveLayer) return;
      animate(state, knobs);
      screen?.turn(state.liveLayer);
    },
    change: setKnobs,
  });
  state.choose = setKnobs;
  state.click = (cell) => send("cell", cell);
  const screen = sent.screen && (part("screen").firstScreen ??= new host.FirstScreen(part("screen"), (knobs) => state.choose(knobs), (cell) => state.click(cell)));
  drawOverride(part("override"), sent.override, setKnobs);
  drawStrip(part("strip"), sent.strip, setKnobs);
  drawLine(part("answer-line"), sent.line, setKnobs);

  screen?.update(sent.screen, state.liveLayer, sent.large, pictureOf(sent));
  loadPlotly().then(async () => {
    for (const [i, figure] of sent.figures.entries()) {
      if (state.figures !== sent.figures) return; // a newer message arrived meanwhile
      if (sent.screen && isBelow(state.pictures[i])) await painted(); // nobody sees it, and it would delay the first screen
      if (state.figures === sent.figures) await draw(state, state.pictures[i], figure, send);
    }
    requestWindows(state, send);
    state.painted = sent.figures;
    requestRest(state, host);
  }).catch((error) => {
    state.pictures = [];
    root.textContent = `The picture could not be drawn: ${error.message}. `
      + "The table below has the numbers; reload the page to try again.";
  });
}
