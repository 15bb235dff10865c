// A browser, a network and a server around `Entries`, as small as they can be: random sequences of acts, with answers that come
// late, in another order, or never. `check(Entries, seed, prompt)` runs one sequence and returns what was wrong, or "".
//
// The server has held knobs `a` and `b` that the page writes into the address by itself, `c` that only the server can write,
// and `s` and `t` of the sidebar, whose widgets send what they show with every message. An `a` of 3 allows an `s` of 2 at most.

const DEFAULTS = { a: "0", b: "0" };
const LIMIT = 2;

function random(seed) { // mulberry32
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return { below: (n) => Math.floor(next() * n), chance: (share) => next() < share, pick: (all) => all[Math.floor(next() * all.length)] };
}

const stateOf = (query) => Object.fromEntries([...new URLSearchParams(query)].sort());
const written = (state) => JSON.stringify(Object.fromEntries(Object.entries(state).filter(([, value]) => value !== "0").sort()));

class History {
  constructor(path, query) { this.entries = [{ path, query }]; this.at = 0; }
  get now() { return this.entries[this.at]; }
  push(path, query) { this.entries = [...this.entries.slice(0, this.at + 1), { path, query }]; this.at += 1; }
  replace(path, query) { this.entries[this.at] = { path, query }; }
  move(by) { const to = this.at + by; if (to < 0 || to >= this.entries.length) return false; this.at = to; return true; }
}

// As pages/ui/address/__init__.py.
class Server {
  static sessions = 0;
  constructor(path, query) {
    Object.assign(this, { session: `session ${Server.sessions += 1}`, page: path, number: 0, serverActs: 0, serial: 0, replaced: {}, replacedIn: 0 });
    this.knobs = { a: "0", b: "0", c: "0", s: "0", t: "0", ...stateOf(query) };
    this.widgets = null; // what the widgets of the page said last
  }
  run({ widgets, acts, fragment, path }) {
    if (path !== this.page) { this.page = path; this.widgets = null; }
    else if (widgets) {
      for (const [name, value] of Object.entries(widgets)) {
        if (this.widgets && value === this.widgets[name]) continue;
        if (!this.widgets && value === this.knobs[name]) continue;
        this.serverActs += 1;
        this.knobs[name] = value;
      }
    }
    this.widgets = path === this.page && widgets ? { ...widgets } : this.widgets;
    let whole = !fragment;
    if (acts && ["", this.session].includes(acts.session)) {
      if (acts.seen >= this.replacedIn && this.replacedIn) Object.assign(this, { replaced: {}, replacedIn: 0 });
      for (const act of acts.acts) {
        if (act.number <= this.number) continue;
        if (act.state) { this.restore(act.state); whole = true; }
        else Object.assign(this.knobs, act.knob, act.cell);
        this.number = act.number;
      }
    }
    const set = {};
    if (whole) {
      for (const [name, { before, value }] of Object.entries(this.replaced)) {
        if (this.knobs[name] === value) continue;
        if (before.includes(this.knobs[name])) this.knobs[name] = value;
        else delete this.replaced[name];
      }
      if (this.knobs.a === "3" && Number(this.knobs.s) > LIMIT) this.knobs.s = String(LIMIT);
      for (const name of ["s", "t"]) if (!this.widgets || this.widgets[name] !== this.knobs[name] || name in this.replaced) set[name] = this.knobs[name];
      this.widgets = { s: this.knobs.s, t: this.knobs.t };
    }
    const figure = { number: this.number, shown: { ...this.knobs }, session: this.session, page: this.page };
    if (!whole) return { figure, set };
    this.serial += 1;
    const restored = Object.keys(this.replaced).length > 0;
    if (restored) this.replacedIn = this.serial;
    const state = Object.fromEntries(Object.entries(this.knobs).filter(([, value]) => value !== "0"));
    const answer = { session: this.session, serial: this.serial, number: this.number, serverActs: this.serverActs, page: this.page.slice(1), pages: ["heads"], state, restored };
    return { figure, set, answer };
  }
  restore(state) {
    const knobs = { a: "0", b: "0", c: "0", s: "0", t: "0", ...state };
    for (const name of ["s", "t"]) {
      if (this.knobs[name] === knobs[name] && !(name in this.replaced)) continue;
      const replaced = (this.replaced[name] ??= { before: [] });
      replaced.before.push(this.knobs[name]);
      replaced.value = knobs[name];
    }
    this.knobs = knobs;
  }
}

class Tab {
  constructor(Entries, dice, history) {
    Object.assign(this, { Entries, dice, history, wrong: "" });
    this.load();
  }
  load() {
    const { path, query } = this.history.now;
    this.server = new Server(path, query);
    this.entries = new this.Entries(path, query, {
      push: (to, text) => this.history.push(to, text),
      replace: (to, text) => this.history.replace(to, text),
    });
    Object.assign(this, { path, widgets: null, figure: null, toServer: [], toPage: [], drawn: [], fragmentActs: null, wholeActs: null });
    this.send(true);
  }
  send(whole, path = this.path) {
    const acts = [this.fragmentActs, this.wholeActs].filter(Boolean).sort((one, other) => (one.acts.at(-1)?.number ?? 0) - (other.acts.at(-1)?.number ?? 0));
    const numbers = new Map(acts.flatMap((one) => one.acts).map((act) => [act.number, act]));
    const all = acts.length ? {
      session: acts.at(-1).session, seen: Math.max(...acts.map(({ seen }) => seen)), acts: [...numbers.values()].sort((one, other) => one.number - other.number),
    } : null;
    const changes = path !== this.path;
    // A run that has not begun is given up for the next.
    if (this.toServer.length && this.dice.chance(0.4)) {
      const given = this.toServer.pop();
      whole ||= !given.fragment;
    }
    this.toServer.push(structuredClone({ widgets: changes ? null : this.widgets, acts: changes ? null : all, fragment: !whole, path }));
  }
  // One thing happens somewhere between the page and the server.
  step() {
    const places = ["toServer", "toPage", "drawn"].filter((place) => this[place].length);
    if (!places.length) return false;
    const place = this.dice.pick(places);
    if (place === "toServer") this.toPage.push(this.server.run(this.toServer.shift()));
    else if (place === "toPage") { // messages of one socket come in their order, what they draw does not
      const { figure, set, answer } = this.toPage.shift();
      if (figure.page !== this.path) {
        this.path = figure.page;
        Object.assign(this, { figure: null, widgets: null, fragmentActs: null, wholeActs: null });
        this.entries.opened(this.path);
      }
      this.widgets = { ...this.widgets, ...set };
      this.drawn.push({ figure }, ...(answer ? [{ answer }] : []));
    } else this.draw(this.drawn.splice(this.dice.chance(0.7) ? 0 : this.dice.below(this.drawn.length), 1)[0]);
    return true;
  }
  draw({ figure, answer }) {
    if (figure) {
      const { shown } = this;
      if (figure.page !== this.path) return;
      if (this.figure && (figure.number < this.figure.number || figure.number < this.entries.number) && figure.session === this.figure.session) return;
      this.figure = { ...figure, shown: { ...figure.shown } };
      return;
    }
    const before = JSON.stringify([this.history.entries, this.history.at]), older = answer.number < this.entries.number;
    const then = this.entries.answer(answer);
    if (older && JSON.stringify([this.history.entries, this.history.at]) !== before) this.wrong ||= "an answer to an older number has changed the address";
    if (then === "acts") { this.wholeActs = this.entries.message; this.send(true); }
  }
  quiet() {
    for (let round = 0; round < 1000; round += 1) {
      while (this.step());
      if (this.entries.acts.length) { this.wholeActs = this.entries.message; this.send(true); }
      else if (round) return;
      else this.send(true); // the rest of the page
    }
    this.wrong ||= "it does not come to rest";
  }
  turn(name, value) {
    if (!this.figure || this.figure.page !== this.path) return;
    this.figure.shown[name] = value;
    const query = new URLSearchParams(this.entries.query);
    if (value === DEFAULTS[name]) query.delete(name);
    else query.set(name, value);
    this.entries.act({ key: "figure", knob: { [name]: value } }, name, String(query), this.time = (this.time ?? 0) + 5000);
    this.fragmentActs = this.entries.message;
    this.send(false);
  }
  click(value) {
    if (!this.figure || this.figure.page !== this.path) return;
    this.entries.act({ key: "figure", cell: { c: value } }, "", null);
    this.fragmentActs = this.entries.message;
    this.send(false);
  }
  set(name, value) {
    if (!this.widgets || !(name in this.widgets) || this.widgets[name] === value) return;
    this.widgets[name] = value;
    this.send(true);
  }
  open(path) { if (path !== this.path && this.widgets) this.send(true, path); }
  move(by) {
    if (!this.history.move(by)) return;
    const { path, query } = this.history.now;
    if (path !== this.entries.path) this.load();
    else if (this.entries.traversed(query)) { this.wholeActs = this.entries.message; this.send(true); }
  }
  // What is not as it must be when all is quiet.
  problem() {
    const address = written(stateOf(this.history.now.query)), { knobs } = this.server;
    if (this.wrong) return this.wrong;
    if (written(knobs) !== address) return `the address is ${address}, the server has ${written(knobs)}`;
    if (written(this.figure.shown) !== address) return `the address is ${address}, the figure shows ${written(this.figure.shown)}`;
    const { s, t } = knobs;
    if (written(this.widgets) !== written({ s, t })) return `the server has ${written({ s, t })}, the sidebar shows ${written(this.widgets)}`;
    return "";
  }
}

export function check(Entries, seed, prompt) {
  const dice = random(seed), history = new History("/", "");
  const tab = new Tab(Entries, dice, history);
  const log = [];
  tab.quiet();
  for (let count = 3 + dice.below(8); count > 0; count -= 1) {
    const before = { at: history.at, entries: structuredClone(history.entries) };
    const act = dice.pick(["turn", "turn", "click", "set", "set", "move", "move", "move", "open", "load"]);
    const given = {
      turn: [dice.pick(["a", "b"]), String(dice.below(5))], click: [String(dice.below(5))], set: [dice.pick(["s", "t"]), String(dice.below(5))],
      move: [dice.pick([-1, -1, 1])], open: [dice.pick(["/", "/heads"])], load: [],
    }[act];
    log.push(`${act} ${given}`);
    tab[act](...given);
    if (!prompt) {
      for (let steps = dice.below(8); steps > 0; steps -= 1) tab.step();
      continue;
    }
    tab.quiet();
    const more = history.entries.length - before.entries.length, problem = tab.problem();
    if (problem) return `${log.join("; ")}: ${problem}`;
    if (act !== "move" && (history.at - before.at > 1 || history.at < before.at)) return `${log.join("; ")}: ${history.at - before.at} entries`;
    if (act === "move" && more) return `${log.join("; ")}: Back has made an entry`;
    const same = ({ path, query }, other) => path === other.path && written(stateOf(query)) === written(stateOf(other.query));
    if (!before.entries.slice(0, before.at + (act === "move")).every((one, i) => same(one, history.entries[i]))) return `${log.join("; ")}: an entry has changed`;
    if (history.at === before.at && ["turn", "click", "set", "open"].includes(act) && !same(before.entries[before.at], history.now)) return `${log.join("; ")}: an act has no entry`;
  }
  tab.quiet();
  if (tab.problem()) return `${log.join("; ")}: ${tab.problem()}`;
  // All the way back: every entry gives its state.
  while (history.at > 0) {
    const { path, query } = history.entries[history.at - 1];
    tab.move(-1);
    tab.quiet();
    const now = written(stateOf(history.now.query));
    if (tab.problem()) return `${log.join("; ")}; back to ${path}?${query}: ${tab.problem()}`;
    if (now !== written(stateOf(query)) && !/a=3/.test(query)) return `${log.join("; ")}; back to ${path}?${query}: ${now}`;
  }
  return "";
}
