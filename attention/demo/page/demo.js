// The demo: a list of states, one of them drawn. The address after # contains the state and its changed knobs, and nothing
// else is stored, so that a link opens the same picture, and Back undoes one user action.

import render from "./figure.js";
import { Film } from "./film.js";
import { Lab } from "./lab.js";
import { load } from "./packed_state.js";
import { create } from "./elements.js";
import { loadPlotly } from "./message.js";

const TICK = 120; // milliseconds per frame of a film
const MERGE_TIME = 1000; // milliseconds within which changes of the same knob, by a held key, are one history entry

loadPlotly().catch(() => {}); // the figure tries again, and reports an error

const manifest = JSON.parse(document.getElementById("about").textContent);
const part = (name) => document.querySelector(`#demo .${name}`);
const host = { act, isLate: () => false, requestRest() {} }; // without a server, every action is answered at once
const current = { name: "", knobs: {}, view: null, last: { names: "", time: 0 }, timer: 0 };

// The state and the knobs of the address: #causal&step=scores is the state "causal" with another step.
function readAddress() {
  const [name, ...rest] = location.hash.slice(1).split("&");
  const state = manifest.states.find((candidate) => candidate.name === name) ?? manifest.states[0];
  return { state, knobs: Object.fromEntries(new URLSearchParams(rest.join("&"))) };
}

function addressOf(knobs) {
  const query = new URLSearchParams(current.view.changedKnobs(knobs));
  return `#${[current.name, ...(query.size ? [String(query)] : [])].join("&")}`;
}

// Applies changed knobs: one user action is one history entry.
function change(changes) {
  const knobs = current.view.validated({ ...current.knobs, ...changes });
  const address = addressOf(knobs);
  if (address === location.hash) return draw(knobs);
  const names = Object.keys(changes).join(" ");
  const merges = names === current.last.names && performance.now() - current.last.time < MERGE_TIME;
  current.last = { names, time: performance.now() };
  if (merges) location.replace(address);
  else location.hash = address;
  return undefined;
}

function act({ knob, cell }) {
  stop();
  if (knob) change(Object.fromEntries(Object.entries(knob).map(([name, value]) => [name, String(value)])));
  if (cell) change(current.view.clicked(current.knobs, cell));
}

function draw(knobs) {
  const { bytes, numbers } = current.view.message(knobs);
  current.knobs = knobs;
  render({ data: bytes, parentElement: document.getElementById("demo"), setTriggerValue() {} }, host);
  current.numbers = numbers;
  const lab = document.querySelector("#lab");
  if (lab) lab.href = `${manifest.lab.replace(/\/$/, "")}/?${current.view.labQuery(knobs)}`;
  part("player").hidden = !(current.view instanceof Film);
  if (current.view instanceof Film) drawPlayer(knobs);
  if (part("table").open) drawTable();
}

// The controls of a film: its current step and the model's answers.
function drawPlayer(knobs) {
  const { steps } = current.view;
  const range = document.querySelector("#at");
  Object.assign(range, { max: steps.length - 1, value: steps.indexOf(knobs.at) });
  range.setAttribute("aria-valuetext", `step ${knobs.at}`);
  part("position").textContent = `step ${knobs.at} of ${steps.at(-1)}`;
  const answers = current.view.answers(knobs);
  const words = answers.flatMap(([word, isRight]) => [create(isRight ? "span" : "s", { textContent: word }), " "]);
  const right = answers.filter(([, isRight]) => isRight).length;
  part("answers").replaceChildren("It answers: ", ...words, `· ${right} of ${answers.length} right`);
}

function stop() {
  if (!current.timer) return;
  clearInterval(current.timer);
  current.timer = 0;
  document.querySelector("#play").textContent = "Play";
  history.replaceState(null, "", addressOf(current.knobs));
}

function play() {
  if (current.timer) {
    stop();
    return;
  }
  const { steps } = current.view;
  if (current.knobs.at === steps.at(-1)) draw({ ...current.knobs, at: steps[0] });
  document.querySelector("#play").textContent = "Stop";
  current.timer = setInterval(() => {
    const next = steps[steps.indexOf(current.knobs.at) + 1];
    if (next) draw({ ...current.knobs, at: next });
    else stop();
  }, TICK);
}

// Draws the numbers of the chosen step as a table.
function drawTable() {
  const { caption, across, rows } = current.view.table(current.knobs, current.numbers);
  const head = create("tr", {}, create("td"), ...across.map((text) => create("th", { scope: "col", textContent: text })));
  const body = rows.map(([name, ...numbers]) => (
    create("tr", {}, create("th", { scope: "row", textContent: name }), ...numbers.map((text) => create("td", { textContent: text })))
  ));
  part("numbers").replaceChildren(create("table", {}, create("caption", { textContent: caption }), head, ...body));
}

async function showAddress() {
  const { state, knobs } = readAddress();
  if (current.name !== state.name) stop();
  current.requested = state.name;
  const nav = document.querySelector("nav");
  for (const link of nav.children) {
    if (link.hash.slice(1) !== state.name) {
      link.removeAttribute("aria-current");
      continue;
    }
    link.setAttribute("aria-current", "page");
    nav.scrollLeft = link.offsetLeft - (nav.clientWidth - link.clientWidth) / 2; // on a phone the list is one line
  }
  try {
    const packed = await load(state.name);
    if (current.requested !== state.name) return; // another state was chosen meanwhile
    if (current.name !== state.name) {
      current.view = packed.film ? new Film(packed) : new Lab(packed);
      current.name = state.name;
      document.querySelector("#title").textContent = state.title;
      document.querySelector("#sentence").textContent = state.sentence;
      document.querySelector("#source").textContent = packed.about;
      document.title = `${state.title} · Attention Lab`;
    }
    draw(current.view.validated(knobs));
  } catch (error) {
    document.querySelector("#sentence").textContent = `This state could not be shown: ${error.message}. Reload the page to try again.`;
  }
}

const links = manifest.states.map(({ name, title }) => create("a", { href: `#${name}`, textContent: title }));
document.querySelector("nav").append(...links);
if (manifest.lab) {
  document.querySelector("#links").append(create("a", { id: "lab", href: manifest.lab, textContent: "Open this in a full Lab" }));
}
document.querySelector("#play").addEventListener("click", play);
document.querySelector("#at").addEventListener("input", ({ target }) => {
  stop();
  draw({ ...current.knobs, at: current.view.steps[target.value] });
});
document.querySelector("#at").addEventListener("change", () => change({}));
part("table").addEventListener("toggle", () => { if (part("table").open) drawTable(); });
window.addEventListener("hashchange", showAddress);
showAddress();
