// The first screen: a sentence that is its own picture, the formula term by term, one large map, one sentence and three cards about
// the chosen pair, and the film that shows how its number is made. Rests, film, stills and links are one function of the time t, from
// 0 to 5: scene i ends at i + 1, and a term at rest is the last moment of its scene.

import { paintPixels } from "./cells.js";
import { create, write } from "./elements.js";
import { css, lookOf, mix } from "./screen_look.js";
import { LargeMap, escape } from "./screen_map.js";
import { Numbers, SCENES, caption, clamp, ease, headline, largestAt, percent, points, said, signed } from "./screen_numbers.js";
import { SpanStrip } from "./screen_spans.js";
import { Stage, arithmetic } from "./screen_stage.js";

const AT_REST = -1; // as in attention/pictures/view.py
const PHONE = 900; // pixels of width below which everything is one column
const ALL_KNOBS = "lab-all-knobs"; // in the storage of the browser: whether "More" is open
const CARDS = ["match", "scale", "share"];
const PAUSE = 250; // milliseconds without a key after which typed text is sent
const MANY_WORDS = 60; // a text of more words scrolls in its line

// The terms in the order of the formula, and how each is read.
const FORMULA = [
  ["share", "softmax"], ["match", "Q times K"], ["scale", "divided by the root of d"], ["hide", "plus mask"], ["collect", "times V"],
];

const SKELETON = `<div class="compared"></div><div class="spans" role="group" aria-label="Named parts of the text" hidden></div><div class="sentence"><svg class="arcs" aria-hidden="true"></svg><div class="tokens"></div></div>
<div class="halves"><div class="large" tabindex="0" role="application" aria-roledescription="attention map"><div class="plot"></div><svg class="over" aria-hidden="true"></svg><div class="tip" aria-hidden="true" hidden></div></div>
<div class="say"><div class="formula" role="group" aria-label="The formula of attention: five steps"></div>
<div class="legend" aria-hidden="true">less in B<i></i>more in B</div><div class="film"><button type="button" class="play"></button><div class="track"><svg aria-hidden="true"></svg><input type="range" min="0" max="5" step="0.01" aria-label="Film: five scenes"></div></div>
<h2 class="headline" aria-live="polite"></h2><p class="caption" aria-live="polite"></p><div class="cards"></div>
<div class="stagebox"><svg class="stage" role="img"></svg><div class="arithmetic" hidden></div></div></div></div>
<span class="where"></span><canvas class="flying" aria-hidden="true"></canvas>`;

// The storage of the browser, which a browser may refuse in a frame.
function remembered(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}

function remember(key, value) {
  try { localStorage.setItem(key, value); } catch { /* the choice lasts as long as the page */ }
}

// Parts of a sentence as HTML: a word with a role has its colour.
const html = (parts) => parts.map((part) => (typeof part === "string" ? escape(part) : `<span class="${part.role}">${escape(part.text)}</span>`)).join("");
const plain = (parts) => parts.map((part) => part.text ?? part).join("");

// A changed knob in words; a text that runs from right to left stays where it is.
const turned = ({ label, before, after }) => [`${label} `, create("bdi", { textContent: before || "…" }), " → ", create("bdi", { textContent: after || "…" })];

// The pictures whose patches are the queries or the keys, from the layout of the figure over them: the place of each patch by its position.
// What has an axis, such as a sound in seconds, need not have square cells.
function picturesOf(over, role, isSelf) {
  if (!over || !(isSelf || (over.meta.grid.reads === "query") === (role === "keys"))) return [];
  const { images = [], meta: { grid: { positions, top, boxes = [] } } } = over;
  const whole = { x: -0.5, y: top - 0.5, sizex: positions[0].length, sizey: positions.length - top };
  const small = images.filter(({ name }) => name !== "large"); // a large frame of a film is there once more
  return (small.length ? small : [whole]).map(({ x, y, sizex, sizey, source }) => {
    const at = new Map();
    for (let row = 0; row < sizey; row += 1) for (let column = 0; column < sizex; column += 1) at.set(positions[row + y + 0.5][column + x + 0.5], [row, column]);
    const found = [...at].filter(([i]) => i >= 0).sort(([i], [j]) => i - j);
    // Predicted boxes, as shares of the picture: of which query, left, top, width, height, and whether it is an object.
    const predicted = boxes.map(([i, x0, y0, x1, y1, isObject]) => [i, (x0 - x) / sizex, (y0 - y) / sizey, (x1 - x0) / sizex, (y1 - y0) / sizey, isObject]);
    return { at: new Map(found), rows: sizey, columns: sizex, source, predicted, isSquare: Boolean(over.yaxis.scaleanchor) };
  });
}

export class FirstScreen {
  t = 4;
  playing = false;
  open = null; // the name of the opened card
  editing = false;
  before = null; // the chosen row before a knob was turned
  toldScene = null;

  masking = false; // whether a click on the map hides or shows a cell

  // `send(knobs)` reports what the user chose, and `click(cell)` a cell to hide or to show.
  constructor(root, send, click) {
    Object.assign(this, { root, send, click });
    root.innerHTML = SKELETON;
    root.classList.toggle("all", remembered(ALL_KNOBS) === "true");
    this.part = (name) => root.querySelector(name);
    this.map = new LargeMap(this.part(".large"), (row, column) => this.pick(row, column), () => this.paintMap());
    this.spans = new SpanStrip(this.part(".spans"), (knobs) => this.choose(knobs));
    this.stage = new Stage(this.part(".stage"), (k) => this.choose({ k }));
    this.part(".play").addEventListener("click", () => this.play());
    const scrub = this.part(".track input");
    scrub.addEventListener("input", () => this.seek(Number(scrub.value)));
    scrub.addEventListener("change", () => this.report());
    this.part(".arcs").addEventListener("click", ({ target }) => this.choose({ k: Number(target.parentElement.dataset.k) }));
    root.addEventListener("pointerdown", (event) => { if (this.playing && !event.target.closest(".film")) this.stop(); }, true);
    root.addEventListener("keydown", (event) => this.key(event));
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    let timer;
    const resized = () => { clearTimeout(timer); timer = setTimeout(() => { this.part(".headline").fitted = null; if (this.sent) this.layout(); }, 60); };
    new ResizeObserver(resized).observe(root);
    addEventListener("resize", resized);
  }

  /** Shows a message of Python's; `live` computes in the page, and `over` is the layout of its figure over a picture. */
  update(sent, live, isProjected, over) {
    const previous = this.sent;
    const numbers = new Numbers(sent, live);
    const isSame = previous && ["queries", "keys"].every((name) => String(previous[name]) === String(sent[name]));
    const saysTheSame = isSame && !over && !this.over && ["sentence", "sequences", "sequence", "spans"].every((name) => JSON.stringify(previous[name]) === JSON.stringify(sent[name]));
    Object.assign(this, { sent, numbers, live, isProjected, over, q: sent.q, k: sent.k, column: sent.column });
    this.root.classList.toggle("projected", isProjected);
    this.root.classList.toggle("compares", Boolean(sent.compared));
    this.root.classList.toggle("difference", numbers.isDifference);
    if (numbers.isDifference) this.playing = false;
    if (!this.playing && !this.scrubbing) this.t = sent.show ?? this.restOf(sent.step);
    if (!sent.changes?.length) this.unchanged = isSame || !previous ? numbers : null;
    this.before = numbers.isDifference ? null : numbers.sharesOf("a", this.q);
    const base = this.unchanged;
    if (!sent.compared && sent.changes?.length && base && base.sent.head === sent.head && base.sent.layer === sent.layer && base.m === numbers.m) this.before = base.row("share", this.q);
    if (this.editing) this.sayWhere();
    else if (!saysTheSame || !this.queryChips[0]?.isConnected) this.drawSentence();
    this.part(".where").textContent = sent.where;
    this.drawCompared();
    this.drawFormula();
    if (this.masking && !this.maskable) this.mask(false);
    this.drawTools();
    this.layout();
    if (sent.compared && !previous?.compared) this.root.closest("[data-testid=stMain]")?.scrollTo({ top: 0 }); // to the switch of the states
  }

  // Of few tokens, whose cells are single ones.
  get maskable() { return Boolean(this.sent.maskable && this.click) && !this.sent.terms.some(({ block }) => block); }

  // Begins to edit the mask on the map, or ends it.
  mask(isOn) {
    this.masking = isOn;
    this.root.classList.toggle("masking", isOn);
    if (isOn && !["hide", "share"].includes(this.term)) this.chooseTerm(this.numbers.has("share") ? "share" : "hide");
    this.drawTools();
    this.paint();
    if (isOn) this.map.root.focus({ preventScroll: true });
  }

  // Hides a cell, or shows it.
  toggle(q, k) {
    Object.assign(this, { q, k });
    this.paint();
    this.click({ step: "toggled", x: k, y: q });
  }

  /** Shows a head whose knob moves, before Python answers. */
  turn(live) {
    this.before ??= this.numbers.row("share", this.q)?.slice();
    this.numbers = new Numbers(this.sent, live);
    if (!this.frame) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.map.repaint(this.numbers);
        this.drawThumbnails();
        this.paint();
      });
    }
  }

  // The moment at which the term of a step is at rest; the weights' for a step that is no term.
  restOf(step) {
    const index = SCENES.findIndex(({ name }) => this.numbers.terms[name]?.step === step);
    if (index >= 0) return index + 1;
    return this.numbers.has("share") ? 4 : 1 + SCENES.findIndex(({ name }) => this.numbers.has(name));
  }

  get scene() {
    const index = clamp(Math.ceil(this.t - 1e-9) - 1, 0, 4);
    return { index, scene: SCENES[index].name, p: clamp(this.t - index) };
  }

  // The term that the map shows in a scene; a scene without one keeps the nearest before it.
  get term() {
    const { index } = this.scene;
    const shown = SCENES.slice(0, index + 1).reverse().find(({ name }) => this.numbers.has(name)) ?? SCENES.find(({ name }) => this.numbers.has(name));
    return shown.name;
  }

  /* Choosing. */

  pick(row, column) {
    this.stop();
    const { map, numbers, term } = this;
    if (this.masking && row !== null && column !== null && term !== "collect") this.toggle(row, column);
    else if (row !== null && column !== null) {
      const [q, k] = numbers.cellOfBlock(term, row, column);
      if (term === "collect") this.choose({ q, column: k }, "collect");
      else this.choose({ q, k }, term);
    } else if (row !== null) this.choose({ q: row * map.geometry.down });
    else if (term === "collect") this.choose({ column }, "collect");
    else this.choose({ k: column * map.geometry.across });
  }

  // Chooses a pair at once, and reports it. A new query brings its strongest key, so that no click ends on a meaningless pair.
  choose({ q = this.q, k, column }, term = null) {
    this.stop();
    if (k === undefined) {
      const row = this.numbers.row("share", q) ?? this.numbers.row("match", q);
      k = q === this.q && column !== undefined ? this.k : row && q !== this.q ? largestAt(this.numbers.isDifference ? Array.from(row, Math.abs) : row, (i) => this.numbers.sees(q, i)) : this.k;
    }
    const knobs = { q, k };
    if (column !== undefined) knobs.column = column;
    if (q !== this.q && column === undefined) {
      const output = this.numbers.row("collect", q);
      if (output) this.column = largestAt(Array.from(output, Math.abs));
    }
    const isTerm = Object.values(this.numbers.terms).some(({ step }) => step === this.sent.step);
    const step = this.numbers.terms[term ?? this.term].step;
    if (!isTerm || step !== this.sent.step) knobs.step = step;
    if (step === this.numbers.terms.collect?.step) knobs.column = column ?? this.column;
    if (this.before) this.before = (this.sent.compared ? this.numbers.sharesOf("a", q) : this.unchanged?.row("share", q)) ?? null;
    Object.assign(this, { q, k, column: column ?? this.column });
    this.paint();
    this.send({ ...knobs, ...(this.sent.show === null ? {} : { show: AT_REST }) });
  }

  chooseTerm(name) {
    this.playing = false;
    this.open = null;
    this.t = SCENES.findIndex((scene) => scene.name === name) + 1;
    this.paint();
    this.report();
  }

  // Reports the moment at which the film stands.
  report() {
    this.scrubbing = false;
    const isRest = Math.abs(this.t - Math.round(this.t)) < 0.005 && this.t > 0.5;
    const term = this.numbers.terms[this.term];
    const knobs = { step: term.step, show: isRest ? AT_REST : Number(this.t.toFixed(2)) };
    if (this.term === "collect") knobs.column = this.column;
    this.send(knobs);
  }

  /* The film. */

  play() {
    if (this.numbers.isDifference) return; // a film shows one state
    this.open = null;
    if (this.still.matches) {
      this.t = this.t >= 5 ? 1 : Math.floor(this.t + 1e-6) + 1;
      this.paint();
      this.report();
      return;
    }
    if (this.playing) { this.stop(); return; }
    if (Math.abs(this.t - Math.round(this.t)) < 0.005) this.t = 0;
    this.playing = true;
    let last = performance.now();
    const tick = (now) => {
      if (!this.playing) return;
      const index = Math.min(4, Math.floor(this.t + 1e-9));
      const isThere = this.numbers.has(SCENES[index].name);
      this.t = isThere ? Math.min(5, this.t + clamp((now - last) / 1000, 0, 0.1) / SCENES[index].seconds) : index + 1;
      last = now;
      if (this.t >= 5) this.playing = false;
      this.paint();
      if (this.playing) requestAnimationFrame(tick);
      else this.report();
    };
    requestAnimationFrame(tick);
    this.paint();
  }

  stop() {
    if (!this.playing) return;
    this.playing = false;
    this.paint();
    this.report();
  }

  seek(t) {
    this.playing = false;
    this.scrubbing = true;
    this.open = null;
    this.t = this.still.matches ? Math.max(1, Math.round(t)) : clamp(t, 0, 5);
    this.paint();
  }

  key(event) {
    const { target, key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || target.matches("textarea, select")) return;
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (key === "Escape" && this.open) { this.open = null; this.paint(); }
    else if (target === this.map.root && moves[key]) {
      const [down, across] = moves[key];
      const isOutput = this.term === "collect";
      const q = clamp(this.q + down, 0, this.numbers.n - 1);
      if (isOutput) this.choose({ q, column: clamp(this.column + across, 0, this.map.geometry.columns - 1) }, "collect");
      else this.choose({ q, k: clamp(this.k + across, 0, this.numbers.m - 1) }, this.term);
    } else if (key === "Escape" && this.masking) {
      this.mask(false);
      this.root.parentElement.querySelector(".tools .mask").focus();
    } else if (key === " " && target === this.map.root && this.masking) this.toggle(this.q, this.k);
    else if (key === " " && target === this.map.root) this.play();
    else if (/^[1-5]$/.test(key) && this.numbers.has(SCENES[key - 1].name)) this.chooseTerm(SCENES[key - 1].name);
    else return;
    event.preventDefault();
  }

  /* The sentence. */

  drawSentence() {
    const { sent, numbers } = this;
    const line = (words, role) => {
      const box = create("span", { className: `line ${role}` });
      const pictures = picturesOf(this.over, role, numbers.isSelf);
      box.chips = words.map((word, i) => {
        const picture = pictures.find(({ at }) => at.has(i));
        const chip = create("button", { type: "button", className: "word", textContent: picture ? "" : word, dir: "auto" });
        const share = create("button", { type: "button", className: "share" });
        chip.addEventListener("click", (event) => {
          if (role === "keys" || event.shiftKey) this.choose({ k: i });
          else this.choose({ q: i });
        });
        share.addEventListener("click", () => this.choose({ k: i }));
        const token = create("span", { className: picture ? "token patch" : "token" }, chip, share);
        if (!picture) box.append(token);
        else if (picture.at.keys().next().value === i) box.append(this.drawPicture(picture));
        if (picture) {
          const place = picture.at.get(i);
          token.style.gridArea = place.map((at) => at + 1).join(" / "); // tokens may stand window by window
          picture.element.append(Object.assign(token, { place, words: word.replace(/^patch(\d*) (\d+),/, "patch$1 row $2, column ") }));
        }
        return token;
      });
      return box;
    };
    const lines = [line(sent.queries, "queries"), ...(numbers.isSelf ? [] : [line(numbers.keys, "keys")])];
    const tokens = this.part(".tokens");
    const focused = [...tokens.querySelectorAll("button")].indexOf(document.activeElement);
    const isBeside = lines.length > 1 && lines.some((each) => each.querySelector(".square")); // a picture stands beside the words of the other line
    tokens.classList.toggle("beside", isBeside);
    tokens.classList.toggle("many", !isBeside && lines[0].querySelectorAll(".token:not(.patch)").length > MANY_WORDS);
    tokens.classList.toggle("cross", lines.length > 1);
    tokens.replaceChildren(...lines);
    this.root.classList.toggle("pictures", Boolean(tokens.querySelector(".pictured")));
    if (focused >= 0) tokens.querySelectorAll("button")[focused]?.focus({ preventScroll: true });
    if (sent.sentence) {
      const type = create("button", { type: "button", className: "type", textContent: "type here", ariaLabel: "Type your own sentence" });
      type.addEventListener("click", () => this.edit());
      lines[0].append(type);
    }
    if (sent.sequences) lines[0].append(this.sequenceMenu());
    this.keyChips = lines.at(-1).chips;
    this.queryChips = lines[0].chips;
    this.spans.draw(sent.spans, sent.queries.length, this.queryChips);
  }

  // The patches of a picture at their places, over its pixels; one of them has the keyboard, and arrows move it.
  drawPicture(picture) {
    const { at, rows, columns, source, predicted, isSquare } = picture;
    const [high, wide] = [126 / rows, (this.root.clientWidth * 0.7) / columns];
    const cell = isSquare ? Math.max(5, Math.min(40, Math.floor(high), Math.floor(wide))) : Math.min(wide, 80);
    picture.element = create("span", { className: "picture", role: "group", ariaLabel: `Picture of ${rows} rows and ${columns} columns of patches` });
    picture.element.style.cssText = `--cell: ${cell}px; --tall: ${isSquare ? cell : high}px; grid-template: repeat(${rows}, ${isSquare ? cell : high}px) / repeat(${columns}, ${cell}px)`;
    if (source) picture.element.style.backgroundImage = `url("${source}")`;
    picture.element.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      const [row, column] = event.target.parentElement.place ?? [];
      const next = move && [...picture.element.children].find(({ place }) => place[0] === row + move[0] && place[1] === column + move[1]);
      if (!next) return;
      event.preventDefault();
      event.target.tabIndex = -1;
      next.firstChild.tabIndex = 0;
      next.firstChild.focus();
    });
    const most = create("button", { type: "button", className: "share most" });
    most.addEventListener("click", () => this.choose({ k: most.strongest }));
    const boxes = predicted.map(([i, left, top, width, height, isObject]) => {
      const box = create("i", { className: isObject ? "box object" : "box", query: i });
      Object.assign(box.style, Object.fromEntries(Object.entries({ left, top, width, height }).map(([side, share]) => [side, `${100 * share}%`])));
      return box;
    });
    const over = create("span", { className: "boxes", ariaHidden: "true" }, ...boxes);
    return create("span", { className: `token pictured${isSquare ? " square" : ""}` }, create("span", { className: "framed" }, picture.element, over), most);
  }

  // Which of several sequences is shown, such as the lines of a text, and the others.
  sequenceMenu() {
    const { sequences, sequence, locked } = this.sent;
    const menu = create("select", { ariaLabel: "Shown sequence", disabled: locked }, ...sequences.map((name, i) => new Option(name, i, false, i === sequence)));
    menu.addEventListener("change", () => this.send({ sequence: Number(menu.value) }));
    return create("label", { className: "sequences" }, `${sequences.length} sequences, shown is `, menu);
  }

  // The sentence becomes a field; what is typed is sent after a pause, or with Ctrl+Enter where the answer takes long.
  edit() {
    this.stop();
    this.editing = true;
    this.root.classList.add("editing");
    const { sentence } = this.sent;
    const field = create("textarea", { value: sentence.text, rows: 2, spellcheck: false, ariaLabel: "Your sentence", dir: "auto" });
    const note = create("span", { className: "note" });
    this.sayWhere = () => {
      const { sentence: { goes_to: where, slow } = {}, sequences, sequence } = this.sent;
      const lines = sequences && `Each line is a sequence of its own: ${sequences.length}, shown is number ${sequence}.`;
      note.textContent = [where && `It goes to ${where}.`, lines, slow && "This takes longer than a second: Ctrl+Enter, or the button, sends it."].filter(Boolean).join(" ");
    };
    let timer;
    let sentText = field.value;
    const commit = () => {
      clearTimeout(timer);
      if (field.value === sentText || !field.value.trim()) return;
      sentText = field.value;
      this.send({ typed: field.value });
    };
    const done = create("button", { type: "button", className: "done", textContent: "Done" });
    const end = () => { commit(); this.editing = false; this.root.classList.remove("editing"); this.drawSentence(); this.paint(); };
    field.addEventListener("input", (event) => {
      clearTimeout(timer);
      if (!event.isComposing && !this.sent.sentence.slow) timer = setTimeout(commit, PAUSE);
    });
    field.addEventListener("compositionend", () => { if (!this.sent.sentence.slow) timer = setTimeout(commit, PAUSE); });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) commit();
      if (event.key === "Escape") { end(); this.part(".type")?.focus(); }
      event.stopPropagation();
    });
    done.addEventListener("click", () => { end(); this.part(".type")?.focus(); });
    this.part(".tokens").replaceChildren(create("span", { className: "typing" }, field, done, note));
    write(this.part(".arcs"), "");
    this.sayWhere();
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }

  // How much of the shares the film has shown.
  get shownShares() {
    const { index, p } = this.scene;
    return index < 3 ? 0 : index === 3 ? ease(0.4, 1, p) : 1;
  }

  paintSentence() {
    const { numbers, look, q, k, shownShares: shown } = this;
    this.spans.paint(numbers, q, k);
    if (this.editing) return;
    const row = numbers.row("share", q);
    this.queryChips.forEach((chip, i) => {
      if (chip.asks === (i === q)) return;
      chip.asks = i === q;
      chip.classList.toggle("asks", chip.asks);
      chip.firstChild.ariaPressed = String(chip.asks);
    });
    for (const picture of this.root.querySelectorAll(".picture")) this.paintPicture(picture, row, shown);
    this.keyChips.forEach((chip, i) => {
      if (chip.place) return;
      const share = row && Number.isFinite(row[i]) ? row[i] : 0;
      const has = shown > 0.5 && Math.abs(share) >= 0.005;
      const text = has ? (numbers.isDifference ? points(share) : percent(share)) : "";
      const sees = numbers.sees(q, i);
      // As fine as the number says it, so that most words of a long text stay as they are.
      const fill = numbers.has("share") ? numbers.color(look, "share", Math.round(share * shown * 100) / 100) : look.zero;
      const drawn = [css(fill), sees, i === k, q, text].join();
      if (chip.drawn === drawn) return;
      chip.drawn = drawn;
      const [word, percentage] = chip.children;
      Object.assign(word.style, { background: css(fill), color: look.reads(fill) ? "" : look.on(fill) });
      word.classList.toggle("masked", !sees);
      chip.classList.toggle("answers", i === k);
      if (percentage.textContent !== text) percentage.textContent = text;
      if (percentage.hidden === has) percentage.hidden = !has;
      if (has) percentage.ariaLabel = `Choose the pair ${this.sent.queries[q]} to ${numbers.keys[i]}, ${text}${numbers.isDifference ? " points" : ""}`;
    });
    if (this.inView !== this.queryChips[q]) {
      this.inView = this.queryChips[q];
      this.inView?.closest(".many")?.scrollTo({ left: this.inView.offsetLeft - 200, behavior: "instant" });
    }
  }

  // Shares of patches are small: the strongest one has the full colour, and its number stands below.
  paintPicture(picture, row, shown) {
    const { keyChips, queryChips, numbers, look, q, k } = this;
    const shares = new Map(keyChips.map((chip, i) => [chip, row && Number.isFinite(row[i]) ? row[i] : 0]));
    const size = (chip) => Math.abs(shares.get(chip) ?? 0);
    const strongest = [...picture.children].reduce((best, chip) => (size(chip) > size(best) ? chip : best));
    const most = size(strongest);
    const inWords = (share) => (numbers.isDifference ? `${points(share)} points` : percent(share));
    const hue = (share) => (numbers.isDifference ? look.signed(Math.sign(share), 1) : look.weight);
    const hasFocus = queryChips[q]?.parentElement === picture ? queryChips[q] : picture.firstChild;
    for (const chip of picture.children) {
      const [i, share] = [keyChips.indexOf(chip), shares.get(chip) ?? 0];
      const [word] = chip.children;
      const strength = most ? (Math.abs(share) / most) * shown : 0;
      word.style.background = picture.style.backgroundImage ? `rgb(${hue(share).map(Math.round).join(" ")} / ${(0.7 * strength).toFixed(3)})` : css(mix(look.zero, hue(share), strength));
      word.classList.toggle("masked", i >= 0 && !numbers.sees(q, i));
      word.ariaLabel = word.title = `${chip.words}${Math.abs(share) * shown > 0 ? `, ${inWords(share)}` : ""}`;
      if (!picture.contains(document.activeElement)) word.tabIndex = chip === hasFocus ? 0 : -1;
      chip.classList.toggle("answers", i >= 0 && i === k);
    }
    for (const box of picture.nextSibling.children) box.classList.toggle("asks", box.query === q);
    const number = picture.parentElement.nextSibling;
    number.hidden = !(most * shown > 0);
    number.strongest = keyChips.indexOf(strongest);
    number.textContent = `up to ${inWords(shares.get(strongest) ?? 0)}`;
    number.ariaLabel = `Choose the pair with ${strongest.words}, ${inWords(shares.get(strongest) ?? 0)}`;
  }

  paintArcs() {
    if (this.editing) return;
    const { numbers, q, isProjected, shownShares: shown } = this;
    const [arcs, row] = [this.part(".arcs"), numbers.row("share", q)];
    if (!row || !shown || !arcs.clientWidth || this.queryChips[q].place) { write(arcs, ""); return; }
    const box = arcs.getBoundingClientRect();
    const middle = (chip, edge = "top") => { const word = chip.firstChild.getBoundingClientRect(); return [(word.left + word.right) / 2 - box.left, word[edge] - box.top]; };
    const from = middle(this.queryChips[q], numbers.isSelf ? "top" : "bottom");
    const drawn = this.keyChips.map((chip, i) => [i, row[i]]).filter(([i, w]) => Math.abs(w) >= 0.005 && !(numbers.isSelf && i === q) && !this.keyChips[i].place);
    const far = Math.max(1, ...drawn.map(([i]) => Math.abs(middle(this.keyChips[i])[0] - from[0])));
    write(arcs, drawn.map(([i, x]) => {
      const w = Math.abs(x);
      const hue = numbers.isDifference ? `style="stroke:${css(this.look.signed(Math.sign(x), 1))}"` : "";
      const to = middle(this.keyChips[i]);
      const isSameLine = Math.abs(to[1] - from[1]) < 4;
      const lift = Math.min(box.height * 1.24, 48) * (0.45 + (0.55 * Math.abs(to[0] - from[0])) / far);
      const path = isSameLine ? `M${from[0]} ${from[1] - 1}C${from[0]} ${from[1] - lift} ${to[0]} ${to[1] - lift} ${to[0]} ${to[1] - 1}`
        : numbers.isSelf ? "" : `M${from[0]} ${from[1]}C${from[0]} ${from[1] + 16} ${to[0]} ${to[1] - 16} ${to[0]} ${to[1]}`;
      return path && `<g data-k="${i}"><path class="arc" d="${path}" ${hue} stroke-width="${(1 + 6 * w) * (isProjected ? 1.5 : 1)}" opacity="${((0.22 + 0.78 * w) * shown).toFixed(2)}"/><path class="hit" d="${path}"/></g>`;
    }).join(""));
  }

  /* The formula. */

  drawFormula() {
    const { numbers } = this;
    const { normalizer } = numbers.formula;
    const glyphs = {
      share: `<span class="upright">${escape(normalizer || "softmax")} (</span>`,
      match: "<span class=\"query math\">Q</span><span class=\"key math\">K</span><sup class=\"key upright\">T</sup>",
      scale: `<span class="upright">/ √</span><span class="root math">d</span>`,
      hide: "<span class=\"upright\">+ mask )</span>",
      collect: "<span class=\"value math\">V</span>",
    };
    const box = this.part(".formula");
    const terms = FORMULA.map(([name, spoken]) => {
      const number = SCENES.findIndex((scene) => scene.name === name) + 1;
      const button = create("button", { type: "button", className: "term", disabled: !numbers.has(name) });
      button.dataset.name = name;
      button.innerHTML = `<span class="glyph">${glyphs[name]}</span><canvas></canvas><span class="does">${number} ${name}</span>`;
      button.ariaLabel = `Step ${number}, ${spoken}: ${numbers.has(name) ? "show its matrix as the large map" : "not recorded by this source"}`;
      button.addEventListener("click", () => this.chooseTerm(name));
      return button;
    });
    const focused = box.contains(document.activeElement) && document.activeElement.dataset.name;
    box.replaceChildren(...terms);
    if (focused) box.querySelector(`[data-name=${focused}]`)?.focus({ preventScroll: true });
  }

  drawThumbnails() {
    for (const button of this.part(".formula").children) {
      const { name } = button.dataset;
      if (this.numbers.has(name)) paintPixels(button.querySelector("canvas"), this.numbers.heat(this.look, name));
    }
  }

  /* Two states: which of them is shown, or what differs. */

  drawCompared() {
    const { compared } = this.sent;
    const box = this.part(".compared");
    if (!compared) { box.replaceChildren(); return; }
    const { shown, sides, reason } = compared;
    const choose = (side) => this.send({ side, ...(side === "difference" || !this.sent.sentence ? {} : { editing: side }) });
    const focused = box.contains(document.activeElement) && document.activeElement.matches("[role=radio]");
    const radios = sides.map((side) => {
      const button = create("button", { type: "button", role: "radio", textContent: side, tabIndex: side === shown ? 0 : -1 });
      button.ariaChecked = String(side === shown);
      button.title = side === "difference" ? "B − A, for every number" : `State ${side}`;
      button.addEventListener("click", () => { if (side !== shown) choose(side); });
      return button;
    });
    const group = create("div", { role: "radiogroup", ariaLabel: "The state that is shown" }, ...radios);
    group.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      const at = (radios.indexOf(document.activeElement) + step + sides.length) % sides.length;
      radios[at].focus();
      choose(sides[at]);
      event.preventDefault();
    });
    const { changes } = this.sent;
    const words = reason ? [reason] : changes.length ? ["From A to B: ", ...changes.flatMap((change, i) => [i ? " · " : "", ...turned(change)])] : ["A and B are the same."];
    const differs = create("span", { className: "differs" }, ...words, shown === "B" && compared.a ? " (dashed bars: A)" : "");
    differs.title = differs.textContent;
    box.replaceChildren(group, differs);
    if (focused) radios[sides.indexOf(shown)].focus({ preventScroll: true });
  }

  /* What stands beside the knobs: sizes that the model fixes, the other knobs, and what was changed. */

  drawTools() {
    const { sent, root } = this;
    const tools = root.parentElement.querySelector(".tools");
    if (sent.locked) { tools.replaceChildren(); return; }
    const focused = tools.contains(document.activeElement) && document.activeElement.className;
    const more = create("button", { type: "button", className: "more", textContent: root.classList.contains("all") ? "Fewer knobs" : "More …" });
    more.ariaExpanded = String(root.classList.contains("all"));
    more.addEventListener("click", () => {
      root.classList.toggle("all");
      remember(ALL_KNOBS, String(root.classList.contains("all")));
      if (root.classList.contains("all")) document.querySelector("[data-testid=stExpandSidebarButton]")?.click();
      this.drawTools();
      this.layout();
    });
    const fixed = Object.entries(sent.fixed ?? {}).map(([name, size]) => `${name} ${size}`).join(" · ");
    const changes = (!sent.compared && sent.changes) || [];
    const parts = [];
    if (fixed) {
      const button = create("button", { type: "button", className: "fixed", textContent: fixed, title: "The model fixes these. With random weights you choose them: the sentence stays." });
      button.addEventListener("click", () => this.send({ typed: sent.sentence?.text ?? "", random: true }));
      parts.push(button);
    }
    if (this.maskable) {
      const button = create("button", { type: "button", className: "mask", textContent: this.masking ? "Done" : "Edit mask" });
      button.ariaPressed = String(this.masking);
      button.title = "Hide and show cells on the map";
      button.addEventListener("click", () => this.mask(!this.masking));
      parts.push(button);
    }
    parts.push(more);
    if (!changes.length) {
      // Its place is kept, so that nothing moves when the first knob is turned.
      parts.push(create("button", { type: "button", className: "changed", textContent: "What did I change? 0", disabled: true, style: "visibility: hidden" }));
    } else {
      const changed = create("button", { type: "button", className: "changed", textContent: `What did I change? ${changes.length}` });
      changed.ariaExpanded = "false";
      const list = create("div", { className: "changes", hidden: true }, create("h3", { textContent: changes.length === 1 ? "One change" : `${changes.length} changes` }),
        create("ul", {}, ...changes.map((change) => create("li", {}, ...turned(change)))));
      if (this.before) list.append(create("p", { textContent: `${plain(headline(this.numbers, this.q, this.k))}; before ${percent(this.before[this.k] || 0)} (dashed).` }));
      const back = create("button", { type: "button", textContent: changes.length === 1 ? "Take it back" : "Take all back" });
      back.addEventListener("click", () => this.send(sent.reset));
      list.append(back);
      changed.addEventListener("click", () => { list.hidden = !list.hidden; changed.ariaExpanded = String(!list.hidden); });
      parts.push(changed, list);
    }
    tools.replaceChildren(...parts);
    if (focused) tools.querySelector(`.${focused}`)?.focus({ preventScroll: true });
  }

  /* Drawing all of it. */

  // The height of what is left of the window, and everything that depends on sizes.
  layout() {
    if (!this.root.isConnected) return;
    this.look = lookOf(this.root);
    const isPhone = this.root.clientWidth < PHONE;
    this.root.classList.toggle("phone", isPhone);
    if (!isPhone) {
      const top = this.root.getBoundingClientRect().top + (document.querySelector(".stMain, [data-testid=stMain]")?.scrollTop ?? scrollY);
      const below = this.root.parentElement.querySelector(".knobs")?.offsetHeight ?? 53;
      const height = `${Math.round(Math.max(this.part(".sentence").offsetHeight + 440, Math.min(innerHeight - top - below - 16, this.root.clientWidth * 0.72)))}px`;
      if (this.root.style.height !== height) this.root.style.height = height;
    } else this.root.style.height = "";
    this.shownTerm = null;
    this.drawThumbnails();
    this.paint();
  }

  // Words first, then what depends on their sizes, then drawings in spaces that are known: a size that is read after a change is laid out anew.
  paint() {
    const { index, scene, p } = this.scene;
    if (this.shownTerm !== this.term) {
      this.shownTerm = this.term;
      this.map.build(this.numbers, this.term, this.look, this.root.classList.contains("phone"), this.isProjected).then(() => this.paintMap());
    }
    for (const button of this.part(".formula").children) button.ariaPressed = String(button.dataset.name === scene);
    this.paintWords(scene);
    this.paintCards(index, p);
    this.paintSentence();
    this.fitHeadline();
    this.stage.measure();
    const { clientWidth, clientHeight } = this.part(".track");
    this.paintArcs();
    this.paintTrack(clientWidth, clientHeight);
    this.paintMap();
    const moment = { scene, p, q: this.q, k: this.k, column: this.column, before: scene === "share" ? this.before : null };
    this.stage.paint(this.numbers, this.look, moment, this.isProjected);
    this.part(".stage").setAttribute("aria-label", plain(caption(this.numbers, scene, this.q, this.k, this.column)));
    this.fly();
  }

  paintMap() {
    const { scene, p } = this.scene;
    this.map.paint({ scene: this.term === scene ? scene : this.term, p: this.term === scene ? p : 1, q: this.q, k: this.k, column: this.column });
    const { n, m } = this.numbers;
    this.map.root.ariaLabel = `${this.numbers.isDifference ? "B − A, " : ""}${scene}: ${n} queries by ${this.term === "collect" ? `${this.map.geometry?.columns} numbers` : `${m} keys`}. ${plain(headline(this.numbers, this.q, this.k))}. Arrow keys move the chosen cell.`;
    if (!this.editing && this.queryChips && this.look) {
      this.queryChips.forEach((chip, i) => chip.classList.toggle("hovered", this.map.hovered?.row === i));
      this.keyChips.forEach((chip, i) => chip.classList.toggle("hovered", this.map.hovered?.column === i && this.term !== "collect"));
    }
  }

  paintWords(scene) {
    write(this.part(".headline"), html(headline(this.numbers, this.q, this.k)));
    const below = this.masking ? "A click on a cell hides or shows it; with the keys, arrows and Space. Escape ends." : html(caption(this.numbers, scene, this.q, this.k, this.column));
    write(this.part(".caption"), below);
  }

  // A sentence that is too long for its line has smaller letters.
  fitHeadline() {
    const head = this.part(".headline");
    const text = head.textContent.replace(/\d/g, "0"); // all digits are as wide
    if (head.fitted === text) return;
    head.fitted = text;
    head.classList.remove("long");
    head.classList.toggle("long", head.scrollWidth > head.clientWidth + 1);
  }

  paintTrack(width, height) {
    const track = this.part(".track");
    const input = track.querySelector("input");
    const { index, scene, p } = this.scene;
    input.value = this.t;
    input.setAttribute("aria-valuetext", `${index + 1} ${scene}, ${Math.round(p * 100)} %`);
    const edge = 9;
    const x = (t) => edge + (t / 5) * (width - 2 * edge);
    write(track.firstElementChild, `<rect class="rail" x="${edge}" y="${height / 2 - 1.5}" width="${Math.max(0, width - 2 * edge)}" height="3" rx="1.5"/><rect class="past" x="${edge}" y="${height / 2 - 1.5}" width="${Math.max(0, x(this.t) - edge)}" height="3" rx="1.5"/>`
      + SCENES.map(({ name }, i) => (this.numbers.has(name) ? `<circle class="${i + 1 <= this.t ? "past" : "next"}" cx="${x(i + 1)}" cy="${height / 2}" r="4"/>` : "")).join(""));
    const button = this.part(".play");
    const isBetween = Math.abs(this.t - Math.round(this.t)) > 0.005;
    const text = this.still.matches ? "Next →" : this.playing ? "❚❚ Pause" : isBetween ? "▶ Go on" : "▶ Show me";
    if (button.textContent !== text) button.textContent = text;
    button.ariaLabel = this.still.matches ? `Next still, ${index + 1} of 5` : this.playing ? "Pause the film" : "Show me: a film of five scenes, 12 seconds";
  }

  paintCards(index, p) {
    const { numbers, q, k } = this;
    const { formula } = numbers;
    const squared = Math.round(formula.divisor ** 2);
    const root = Math.abs(formula.divisor ** 2 - squared) < 1e-4 ? `√${squared}` : said(formula.divisor);
    const divided = formula.temperature === 1 ? `÷ ${root}` : `÷ (${root} · ${said(formula.temperature)})`;
    const labels = numbers.isDifference ? Object.fromEntries(CARDS.map((name) => [name, name])) : {
      match: formula.score === "dot" || !formula.score ? "<span class=\"query math\">Q</span> · <span class=\"key math\">K</span>" : escape(this.sent.score),
      scale: formula.divisor === 1 && formula.temperature === 1 ? "score" : divided,
      share: escape(formula.normalizer || "weight"),
    };
    const value = (name) => {
      const row = numbers.row(name, q);
      if (!row) return "…";
      if (numbers.isDifference) return Number.isNaN(row[k]) ? "hidden" : signed(numbers.isSent(name, q, k) ? numbers.terms[name].shown : said(row[k]));
      if (name === "share") return numbers.sees(q, k) ? percent(row[k]) : "hidden";
      const term = numbers.terms[name];
      return numbers.isSent(name, q, k) ? term.shown : said(row[k]);
    };
    const shown = CARDS.filter((name) => numbers.has(name));
    const declared = shown.join();
    const box = this.part(".cards");
    if (box.dataset.drawn !== declared) {
      const focused = box.contains(document.activeElement) && document.activeElement.dataset.name;
      box.dataset.drawn = declared;
      box.innerHTML = shown.map((name) => `<button type="button" class="card" data-name="${name}"><span class="label"></span><span class="value"></span><svg viewBox="0 0 10 10" aria-hidden="true"><path d="M1 3l4 4 4-4"/></svg></button>`).join("<i aria-hidden=\"true\">→</i>");
      for (const card of box.querySelectorAll(".card")) {
        card.addEventListener("click", () => {
          const { name } = card.dataset;
          this.stop();
          this.open = this.open === name ? null : name;
          if (this.open) this.t = SCENES.findIndex((scene) => scene.name === name) + 1;
          this.paint();
          if (this.open) this.report();
        });
      }
      if (focused) box.querySelector(`[data-name=${focused}]`)?.focus({ preventScroll: true });
    }
    const isMoving = p < 1 && !this.open;
    for (const card of box.querySelectorAll(".card")) {
      const { name } = card.dataset;
      const [label, number] = card.children;
      write(label, labels[name]);
      write(number, value(name));
      card.ariaExpanded = String(this.open === name);
      const at = SCENES.findIndex((each) => each.name === name);
      card.classList.toggle("later", isMoving && at > index);
      card.classList.toggle("now", at === index);
    }
    const full = this.part(".arithmetic");
    full.hidden = !this.open;
    this.part(".stage").style.visibility = this.open ? "hidden" : "";
    if (this.open) write(full, arithmetic(this.open, numbers, this.look, q, k));
  }

  // What flies between the map and the stage: the pair's vectors, the sum, the values.
  fly() {
    const canvas = this.part(".flying");
    const { scene, p } = this.scene;
    const { geometry } = this.map;
    canvas.hidden = p >= 1 || this.open || !geometry || geometry.down * geometry.across > 1 || this.root.classList.contains("phone");
    if (canvas.hidden) return;
    const context = canvas.getContext("2d");
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(innerWidth * ratio) || canvas.height !== Math.round(innerHeight * ratio)) Object.assign(canvas, { width: Math.round(innerWidth * ratio), height: Math.round(innerHeight * ratio) });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, innerWidth, innerHeight);
    const { look, numbers, q, k, stage: { places } } = this;
    const on = this.map.places();
    const stage = this.part(".stage").getBoundingClientRect();
    const box = (from, to, u, color, bow = 0) => {
      context.fillStyle = css(color);
      const at = from.map((x, i) => x + (to[i] - x) * u);
      context.fillRect(at[0], at[1] + bow * Math.sin(Math.PI * u), at[2] + 0.4, at[3]);
    };
    if (scene === "match" && places.vectors) {
      const { left, each, tall, y1, y2 } = places.vectors;
      const [a, b] = [numbers.vector("query", q), numbers.vector("key", k)];
      for (let i = 0; i < a.length; i += 1) {
        const start = 0.02 + (0.14 * i) / a.length;
        const u = ease(start, start + 0.13, p);
        if (u <= 0 || u >= 1) continue;
        box(on.query(q, i, a.length), [stage.left + left + i * each, stage.top + y1, each, tall], u, look.signed(a[i], numbers.stripLimit("query")));
        box(on.key(k, i, b.length), [stage.left + left + i * each, stage.top + y2, each, tall], u, look.signed(b[i], numbers.stripLimit("key")), 90);
      }
      const u = ease(0.82, 0.94, p);
      if (u > 0 && u < 1 && places.sum) {
        const cell = on.cell(q, k);
        const [x, y] = [stage.left + places.sum[0] - 20 + (cell[0] + cell[2] / 2 - stage.left - places.sum[0] + 20) * u, stage.top + places.sum[1] - 10 + (cell[1] + cell[3] / 2 - stage.top - places.sum[1] + 10) * u - 60 * Math.sin(Math.PI * u)];
        context.fillStyle = css(look.weight);
        context.beginPath();
        context.arc(x, y, look.size.word * 1.2, 0, 7);
        context.fill();
        context.fillStyle = css(look["on-weight"]);
        context.font = `700 ${look.size.label}px ${look.font}`;
        Object.assign(context, { textAlign: "center", textBaseline: "middle" });
        context.fillText(said(numbers.row("match", q)[k]), x, y);
      }
    }
    if (scene === "collect" && places.values && p < 0.34) {
      const { left, each, tall, pitch, limit, list } = places.values;
      list.forEach(({ i: position, vector }, at) => {
        if (position < 0) return;
        vector.forEach((x, d) => {
          const start = 0.03 * at + (0.08 * d) / vector.length;
          const u = ease(start, start + 0.12, p);
          if (u > 0 && u < 1) box(on.value(position, d, vector.length, numbers.m), [stage.left + left + d * each, stage.top + at * pitch + 2, each, tall], u, look.signed(x, limit), 90);
        });
      });
    }
  }
}
