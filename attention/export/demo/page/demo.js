// The demo: the states in a list, one of them drawn. The address after # says which, and what was turned of it; nothing
// else does, so that a link opens the same picture, and Back undoes one act.

import render from "./figure.js";
import { Film } from "./film.js";
import { Lab } from "./lab.js";
import { load } from "./loading.js";
import { made } from "./made.js";
import { loadPlotly } from "./message.js";

const TICK = 120; // milliseconds that a picture of a film is shown
const SAME_ACT = 1000; // milliseconds in which the same knob, turned again by a held key, is one act

loadPlotly().catch(() => {}); // the figure asks again, and says so

const about = JSON.parse(document.getElementById("about").textContent);
const part = (name) => document.querySelector(`#demo .${name}`);
const host = { act, isLate: () => false, askForRest() {} }; // there is no server: every act is answered at once
const shown = { name: "", now: {}, view: null, last: { knobs: "", when: 0 }, timer: 0 };

// #causal&step=scores is the state "causal" with another step.
function asked() {
  const [name, ...rest] = location.hash.slice(1).split("&");
  const state = about.states.find((one) => one.name === name) ?? about.states[0];
  return { state, knobs: Object.fromEntries(new URLSearchParams(rest.join("&"))) };
}

function addressOf(now) {
  const query = new URLSearchParams(shown.view.differing(now));
  return `#${[shown.name, ...(query.size ? [String(query)] : [])].join("&")}`;
}

// One act is one entry of the history.
function go(changes) {
  const now = shown.view.settled({ ...shown.now, ...changes });
  const address = addressOf(now);
  if (address === location.hash) return draw(now);
  const knobs = Object.keys(changes).join(" ");
  const again = knobs === shown.last.knobs && performance.now() - shown.last.when < SAME_ACT;
  shown.last = { knobs, when: performance.now() };
  if (again) location.replace(address);
  else location.hash = address;
  return undefined;
}

function act({ knob, cell }) {
  stop();
  if (knob) go(Object.fromEntries(Object.entries(knob).map(([name, value]) => [name, String(value)])));
  if (cell) go(shown.view.clicked(shown.now, cell));
}

function draw(now) {
  const { bytes, numbers } = shown.view.message(now);
  shown.now = now;
  render({ data: bytes, parentElement: document.getElementById("demo"), setTriggerValue() {} }, host);
  shown.numbers = numbers;
  const lab = document.querySelector("#lab");
  if (lab) lab.href = `${about.lab.replace(/\/$/, "")}/?${shown.view.link(now)}`;
  part("player").hidden = !(shown.view instanceof Film);
  if (shown.view instanceof Film) player(now);
  if (part("table").open) table();
}

// Which picture of a film, its answers, and what plays it.
function player(now) {
  const { steps } = shown.view;
  const range = document.querySelector("#at");
  Object.assign(range, { max: steps.length - 1, value: steps.indexOf(now.at) });
  range.setAttribute("aria-valuetext", `step ${now.at}`);
  part("at").textContent = `step ${now.at} of ${steps.at(-1)}`;
  const answers = shown.view.answers(now);
  const words = answers.flatMap(([word, right]) => [made(right ? "span" : "s", { textContent: word }), " "]);
  const right = answers.filter(([, one]) => one).length;
  part("answers").replaceChildren("It answers: ", ...words, `· ${right} of ${answers.length} right`);
}

function stop() {
  if (!shown.timer) return;
  clearInterval(shown.timer);
  shown.timer = 0;
  document.querySelector("#play").textContent = "Play";
  history.replaceState(null, "", addressOf(shown.now));
}

function play() {
  if (shown.timer) {
    stop();
    return;
  }
  const { steps } = shown.view;
  if (shown.now.at === steps.at(-1)) draw({ ...shown.now, at: steps[0] });
  document.querySelector("#play").textContent = "Stop";
  shown.timer = setInterval(() => {
    const next = steps[steps.indexOf(shown.now.at) + 1];
    if (next) draw({ ...shown.now, at: next });
    else stop();
  }, TICK);
}

// The table twin of the chosen step.
function table() {
  const { caption, across, rows } = shown.view.table(shown.now, shown.numbers);
  const head = made("tr", {}, made("td"), ...across.map((text) => made("th", { scope: "col", textContent: text })));
  const body = rows.map(([name, ...numbers]) => (
    made("tr", {}, made("th", { scope: "row", textContent: name }), ...numbers.map((text) => made("td", { textContent: text })))
  ));
  part("numbers").replaceChildren(made("table", {}, made("caption", { textContent: caption }), head, ...body));
}

async function show() {
  const { state, knobs } = asked();
  if (shown.name !== state.name) stop();
  shown.wanted = state.name;
  const nav = document.querySelector("nav");
  for (const link of nav.children) {
    if (link.hash.slice(1) !== state.name) {
      link.removeAttribute("aria-current");
      continue;
    }
    link.setAttribute("aria-current", "page");
    nav.scrollLeft = link.offsetLeft - (nav.clientWidth - link.clientWidth) / 2; // on a phone it is one line
  }
  try {
    const packed = await load(state.name);
    if (shown.wanted !== state.name) return; // another was chosen in the meantime
    if (shown.name !== state.name) {
      shown.view = packed.film ? new Film(packed) : new Lab(packed);
      shown.name = state.name;
      document.querySelector("#title").textContent = state.title;
      document.querySelector("#sentence").textContent = state.sentence;
      document.querySelector("#source").textContent = packed.about;
      document.title = `${state.title} · Attention Lab`;
    }
    draw(shown.view.settled(knobs));
  } catch (error) {
    document.querySelector("#sentence").textContent = `This state could not be shown: ${error.message}. Reload the page to try again.`;
  }
}

const links = about.states.map(({ name, title }) => made("a", { href: `#${name}`, textContent: title }));
document.querySelector("nav").append(...links);
if (about.lab) {
  document.querySelector("#links").append(made("a", { id: "lab", href: about.lab, textContent: "Open this in a full Lab" }));
}
document.querySelector("#play").addEventListener("click", play);
document.querySelector("#at").addEventListener("input", ({ target }) => {
  stop();
  draw({ ...shown.now, at: shown.view.steps[target.value] });
});
document.querySelector("#at").addEventListener("change", () => go({}));
part("table").addEventListener("toggle", () => { if (part("table").open) table(); });
window.addEventListener("hashchange", show);
show();
