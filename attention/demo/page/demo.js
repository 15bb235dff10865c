// The demo: a list of states, one of them played. The address after # contains the state and its changed knobs, and nothing
// else is stored, so that a link opens the same picture, and Back undoes one user action.

import { Film } from "./film.js";
import { load } from "./states.js";
import { create } from "./elements.js";
import { loadPlotly } from "./message.js";
import { Player } from "./player.js";

const TICK = 120; // milliseconds per frame of a film
const MERGE_TIME = 1000; // milliseconds within which changes of the same knob, by a held key, are one history entry

loadPlotly().catch(() => {}); // the figure tries again, and reports an error

const manifest = JSON.parse(document.getElementById("about").textContent);
const part = (name) => document.querySelector(`#demo .${name}`);
let player = null; // of the shown state
let requested = ""; // the name of the state that is loading or shown

// The state and the knobs of the address: #causal&step=scores is the state "causal" with another step.
function readAddress() {
  const [name, ...rest] = location.hash.slice(1).split("&");
  const state = manifest.states.find((candidate) => candidate.name === name) ?? manifest.states[0];
  return { state, knobs: Object.fromEntries(new URLSearchParams(rest.join("&"))) };
}

/** A state of the demo: what a user changes is written into the address, and what surrounds the figure follows. */
class StatePlayer extends Player {
  constructor(state, packed, knobs) {
    super(document.getElementById("demo"), packed, knobs);
    this.name = state.name;
    document.querySelector("#title").textContent = state.title;
    document.querySelector("#sentence").textContent = state.sentence;
    document.querySelector("#source").textContent = packed.about;
    document.title = `${state.title} · Attention Lab`;
    this.last = { names: "", time: 0 };
  }

  get current() { return this.packed.film ? (this.film ??= new Film(this.packed)) : super.current; }

  get address() {
    const query = new URLSearchParams(this.current.changedKnobs(this.knobs));
    return `#${[this.name, ...(query.size ? [String(query)] : [])].join("&")}`;
  }

  act(action) {
    this.stop();
    super.act(action);
  }

  // One user action is one history entry.
  changed(knobs) {
    const names = knobs.join(" ");
    const merges = names === this.last.names && performance.now() - this.last.time < MERGE_TIME;
    this.last = { names, time: performance.now() };
    if (merges) location.replace(this.address);
    else location.hash = this.address;
  }

  draw() {
    super.draw();
    const lab = document.querySelector("#lab");
    if (lab) lab.href = `${manifest.lab.replace(/\/$/, "")}/?${this.current.labQuery(this.knobs)}`;
    part("player").hidden = !this.film;
    if (this.film) this.drawFilm();
    if (part("table").open) this.drawTable();
  }

  // The controls of a film: its current step and the model's answers.
  drawFilm() {
    const { film: { steps }, knobs } = this;
    const range = document.querySelector("#at");
    Object.assign(range, { max: steps.length - 1, value: steps.indexOf(knobs.at) });
    range.setAttribute("aria-valuetext", `step ${knobs.at}`);
    part("position").textContent = `step ${knobs.at} of ${steps.at(-1)}`;
    const answers = this.film.answers(knobs);
    const words = answers.flatMap(([word, isRight]) => [create(isRight ? "span" : "s", { textContent: word }), " "]);
    const right = answers.filter(([, isRight]) => isRight).length;
    part("answers").replaceChildren("It answers: ", ...words, `· ${right} of ${answers.length} right`);
  }

  stop() {
    if (!this.timer) return;
    clearInterval(this.timer);
    this.timer = 0;
    document.querySelector("#play").textContent = "Play";
    history.replaceState(null, "", this.address);
  }

  play() {
    if (this.timer) {
      this.stop();
      return;
    }
    const { steps } = this.film;
    if (this.knobs.at === steps.at(-1)) this.set({ at: steps[0] });
    document.querySelector("#play").textContent = "Stop";
    this.timer = setInterval(() => {
      const next = steps[steps.indexOf(this.knobs.at) + 1];
      if (next) this.set({ at: next });
      else this.stop();
    }, TICK);
  }

  // Draws the numbers of the chosen step as a table.
  drawTable() {
    const { caption, across, rows } = this.current.table(this.knobs, this.numbers);
    const head = create("tr", {}, create("td"), ...across.map((text) => create("th", { scope: "col", textContent: text })));
    const body = rows.map(([name, ...numbers]) => (
      create("tr", {}, create("th", { scope: "row", textContent: name }), ...numbers.map((text) => create("td", { textContent: text })))
    ));
    part("numbers").replaceChildren(create("table", {}, create("caption", { textContent: caption }), head, ...body));
  }
}

async function showAddress() {
  const { state, knobs } = readAddress();
  if (player?.name !== state.name) player?.stop();
  requested = state.name;
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
    if (requested !== state.name) return; // another state was chosen meanwhile
    if (player?.name === state.name) {
      player.set({ ...player.current.initial, ...knobs });
      return;
    }
    player = new StatePlayer(state, packed, knobs);
    player.draw();
  } catch (error) {
    document.querySelector("#sentence").textContent = `This state could not be shown: ${error.message}. Reload the page to try again.`;
  }
}

const links = manifest.states.map(({ name, title }) => create("a", { href: `#${name}`, textContent: title }));
document.querySelector("nav").append(...links);
if (manifest.lab) {
  document.querySelector("#links").append(create("a", { id: "lab", href: manifest.lab, textContent: "Open this in a full Lab" }));
}
document.querySelector("#play").addEventListener("click", () => player.play());
document.querySelector("#at").addEventListener("input", ({ target }) => {
  player.stop();
  player.set({ at: player.film.steps[target.value] });
});
document.querySelector("#at").addEventListener("change", () => player.changed(["at"]));
part("table").addEventListener("toggle", () => { if (part("table").open) player?.drawTable(); });
window.addEventListener("hashchange", showAddress);
showAddress();
