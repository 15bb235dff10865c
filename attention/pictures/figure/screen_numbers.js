// The numbers of a first screen, and how they are said: from the message, or from the live layer while a knob moves.

import { shown } from "./hover.js";
import { isHidden } from "./kernel.js";
import { poolBlocks } from "./pooling.js";

/** The scenes of the film in the order of computing: the term of the formula that each shows, and its seconds. */
export const SCENES = [
  { name: "match", seconds: 3.6 },
  { name: "scale", seconds: 1.6 },
  { name: "hide", seconds: 1.8 },
  { name: "share", seconds: 2.4 },
  { name: "collect", seconds: 2.6 },
];

export const MOST_BARS = 40; // keys of a row that are drawn one by one; of more, the largest

export const clamp = (x, low = 0, high = 1) => Math.max(low, Math.min(high, x));
/** How far x has come from a to b, eased at both ends. */
export const ease = (a, b, x) => { const t = clamp((x - a) / (b - a)); return t * t * (3 - 2 * t); };
export const between = (a, b, t) => a + (b - a) * t;

const minus = (text) => text.replaceAll("-", "−");
/** A number as `explain` says it: four significant digits. */
export const said = (x) => {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "−∞" : minus(String(x).replace("Infinity", "∞"));
  return shown(x).replace(/^−0$/, "0");
};
/** A number in a cell or at a bar, where there is little room. */
export const brief = (x) => minus(Math.abs(x) >= 9.95 ? x.toFixed(0) : x.toFixed(1)).replace(/^−0(\.0)?$/, "0");
/** A share of one. */
export const percent = (w) => {
  if (w >= 0.0095) return `${Math.round(w * 100)}\u00a0%`;
  if (w >= 0.0005) return `${(w * 100).toFixed(1)}\u00a0%`;
  return w > 0 ? "under 0.1\u00a0%" : "0\u00a0%";
};

/** A number as a change, with its sign. */
export const signed = (text) => (/^−|^0$/.test(text) ? text : `+${text}`);
/** A change of a share, in points of a hundred. */
export const points = (x) => (Math.abs(x) < 0.0005 ? "0" : (x < 0 ? "−" : "+") + percent(Math.abs(x)).slice(0, -2));

export const largestAt = (row, allows = () => true) => row.reduce((best, x, i) => (allows(i) && (best < 0 || x > row[best]) ? i : best), -1);
export const largest = (numbers) => numbers.reduce((most, x) => (Number.isFinite(x) && Math.abs(x) > most ? Math.abs(x) : most), 0);

/** The numbers of one head: rows of the terms, vectors, and what the mask hides. */
export class Numbers {
  // `live` computes what the message does not have, and everything once a knob has moved.
  constructor(sent, live) {
    Object.assign(this, { sent, live: live?.withHead(sent.head) });
    this.terms = Object.fromEntries(sent.terms.map((term) => [term.name, term]));
    this.n = sent.queries.length;
    this.keys = sent.keys.length ? sent.keys : sent.queries;
    this.m = this.keys.length;
    this.isSelf = !sent.keys.length;
    this.kept = new Map();
  }

  has(name) { return name in this.terms; }

  /** Whether every number is B − A. */
  get isDifference() { return this.sent.compared?.shown === "difference"; }

  /** Whether the numbers of a term are shares of one. */
  isShare(name) { return name === "share" && !this.isDifference; }

  /** Whether Python has said the number of a pair. */
  isSent(name, q, k) { return !this.isTurned(name) && q === this.sent.q && k === this.sent.k; }

  /** The colour of a number of a term. */
  color(look, name, x) { return this.isShare(name) ? look.share(x / this.limit(name)) : look.signed(x, this.limit(name)); }

  /** The shares of a query in A and in B, of which the screen shows the difference; A's where it shows B; null where Python has them. */
  sharesOf(side, q) {
    const rows = this.sent.compared?.[side];
    if (!rows) return null;
    return rows.length === this.n ? rows[q] : q === this.sent.q ? rows[0] : null;
  }

  /** A number as a digit of a cell: shares in hundredths, and nothing for less than one. */
  inCell(name, x) {
    if (name !== "share") return !this.isDifference ? brief(x) : Math.abs(x) < 0.05 ? "0" : signed(brief(x));
    return Math.abs(x) < 0.005 ? "" : this.isDifference ? points(x) : Math.round(100 * x);
  }

  /** Whether a knob has moved since the message, and the page computes this term anew. */
  isTurned(name) { return Boolean(this.has(name) && this.live?.changed && this.live.canCompute(this.terms[name].step)); }

  /** Whether the page computes the matrix of this term: where it was not sent, and where a knob has moved. */
  isLive(name) { return this.isTurned(name) || (this.has(name) && !this.terms[name].z); }

  get formula() { return this.live?.changed ? this.live.formula : this.sent; }

  /** The number that the scores are divided by, the temperature included. */
  get divisor() { return this.formula.divisor * (this.formula.temperature || 1); }

  sees(q, k) {
    if (this.isDifference) return !Number.isNaN(this.row("share", q)?.[k] ?? 0);
    if (this.live?.changed) return !isHidden(this.live.formula.mask, q, k, this.m);
    const { hidden } = this.sent;
    return hidden ? !hidden[q][k] : !this.has("share") || this.row("hide", q) === null || !Number.isNaN(this.row("hide", q)[k]);
  }

  /** Whether the mask hides any key from a query. */
  hidesFrom(q) {
    for (let k = 0; k < this.m; k += 1) if (!this.sees(q, k)) return true;
    return false;
  }

  /** The row of a query in a term; null where only Python has it, and it is on its way. */
  row(name, q) {
    const term = this.terms[name];
    if (!term) return null;
    const key = `${name} ${q}`;
    if (!this.kept.has(key)) this.kept.set(key, this.findRow(name, term, q));
    return this.kept.get(key);
  }

  findRow(name, term, q) {
    if (this.isLive(name) || (term.block && this.live?.canCompute(term.step))) {
      const { flat, index } = this.live.step(term.step);
      const width = this.live.columnsOf(term.step);
      const at = index ? index[q] : q;
      return flat.subarray(at * width, (at + 1) * width);
    }
    if (name === "collect" && this.live?.changed) return this.collected(q) ?? term.z[q];
    if (!term.block) return term.z[q];
    return q === this.sent.q ? term.row : null;
  }

  // The weighted sum of the values, where the message has all of them and the page knows new weights.
  collected(q) {
    const { value } = this.sent.vectors;
    const weights = this.row("share", q);
    if (!value || value.strip || !weights || !this.isLive("share")) return null;
    return value.rows[0].map((_, i) => weights.reduce((sum, w, k) => sum + w * value.rows[k][i], 0));
  }

  /** The query, key or value of a token; null where the message has only a strip of blocks. */
  vector(name, position) {
    const sent = this.sent.vectors[name];
    if (!sent) return null;
    if (!sent.strip) return sent.rows[position];
    const at = sent.at.indexOf(position);
    if (at >= 0) return sent.rows[at];
    const head = this.live?.head === this.sent.head ? this.live.currentHead[name] : null;
    return head ? head.flat.subarray(position * head.width, (position + 1) * head.width) : null;
  }

  /** The matrix of a term as it is drawn: rows of numbers, NaN where hidden. */
  matrix(name) {
    const key = `matrix ${name}`;
    if (!this.kept.has(key)) this.kept.set(key, this.findMatrix(name));
    return this.kept.get(key);
  }

  findMatrix(name) {
    const term = this.terms[name];
    if (!this.isLive(name) && !(name === "collect" && !term.block && this.live?.changed)) {
      return name === "share" && !term.block && this.sent.hidden
        ? term.z.map((row, q) => row.map((x, k) => (this.sent.hidden[q][k] ? NaN : x))) : term.z;
    }
    if (term.block) {
      const [down, across] = term.block;
      const { flat, index } = this.live.step(term.step);
      const width = this.live.columnsOf(term.step);
      return poolBlocks(flat, width, across, [0, this.n], [0, width], index, down);
    }
    const rows = Array.from({ length: this.n }, (_, q) => this.row(name, q));
    return name === "share" ? rows.map((row, q) => row.map((x, k) => (this.sees(q, k) ? x : NaN))) : rows;
  }

  /** The matrix of a term with its colours, as Plotly takes a heatmap. */
  heat(look, name) {
    const [isShare, limit] = [this.isShare(name), this.limit(name)];
    return { z: this.matrix(name), zmin: isShare ? 0 : -limit, zmax: limit, colorscale: look.plotly(isShare) };
  }

  /** The cell whose number a block of a map shows. */
  cellOfBlock(name, row, column) {
    const { block, offsets } = this.terms[name];
    if (!block) return [row, column];
    const [down, across] = block;
    if (offsets && !this.isLive(name)) {
      const offset = offsets[row][column];
      return [row * down + Math.floor(offset / across), column * across + (offset % across)];
    }
    let cell = [row * down, column * across];
    let most = -1;
    for (let q = row * down; q < Math.min(this.n, (row + 1) * down); q += 1) {
      this.row(name, q).subarray(column * across, (column + 1) * across).forEach((x, i) => {
        if (Math.abs(x) > most) [cell, most] = [[q, column * across + i], Math.abs(x)];
      });
    }
    return cell;
  }

  /** Where the colours of a term end. */
  limit(name) {
    if (this.isShare(name)) return Math.max(1, this.terms.share.limit ?? 0);
    if (!this.isLive(name)) return this.terms[name].limit;
    const key = `limit ${name}`;
    if (!this.kept.has(key)) this.kept.set(key, largest(this.live.step(this.terms[name].step).flat) || 1);
    return this.kept.get(key);
  }

  /** Where the colours of a strip of vectors end: one outlier would leave the others pale. */
  stripLimit(name) {
    const key = `strip ${name}`;
    if (!this.kept.has(key)) {
      const { strip, rows } = this.sent.vectors[name];
      const sizes = (strip ?? rows).flatMap((row) => Array.from(row, Math.abs)).filter(Number.isFinite).sort((a, b) => a - b);
      this.kept.set(key, sizes[Math.floor(sizes.length * 0.975)] || 1);
    }
    return this.kept.get(key);
  }

  /** The products that make the score of a pair, or null where the page has no vectors or another score function. */
  products(q, k) {
    const [a, b] = [this.vector("query", q), this.vector("key", k)];
    if (!a || !b || a.length !== b.length || this.sent.score !== "dot") return null;
    return Array.from(a, (x, i) => x * b[i]);
  }

  /** The keys of a row that are drawn one by one, in their order: all of few, the largest of many, and the chosen one. */
  barsOf(q, k, name) {
    const row = this.row(name, q);
    if (!row) return [];
    const all = Array.from(row, (_, i) => i);
    if (all.length <= MOST_BARS) return all;
    const size = (i) => (Number.isNaN(row[i]) ? -Infinity : this.isDifference ? Math.abs(row[i]) : row[i]);
    return [...new Set([k, ...all.sort((i, j) => size(j) - size(i)).slice(0, MOST_BARS - 1)])].sort((i, j) => i - j);
  }
}

/* What a pair is called. */

const ORDINALS = ["first", "second", "third", "fourth", "fifth"];

// Which of several equal words a position is: "last", "second"; "" for one of its kind.
function ordinal(words, i, allows = () => true) {
  const same = words.map((word, j) => (word === words[i] && (j === i || allows(j)) ? j : -1)).filter((j) => j >= 0);
  if (same.length < 2) return "";
  const at = same.indexOf(i);
  return at === same.length - 1 ? "last" : ORDINALS[at] ?? `${at + 1}th`;
}

// A word with a role, which has its colour.
const coloured = (role, text) => ({ role, text });

/** A word with its role, such as the last “the”. */
function named(words, i, role, capital, allows) {
  const which = ordinal(words, i, allows);
  const article = which ? `${capital ? "The" : "the"} ${which} ` : "";
  return [article, coloured(role, `“${words[i]}”`)];
}

/** The sentence about the chosen pair, as parts: texts, and words with a role. */
export function headline(numbers, q, k) {
  const { sent: { queries }, keys, isSelf } = numbers;
  const who = named(queries, q, "query", true);
  const whom = isSelf && q === k ? [coloured("key whole", "itself")] : named(keys, k, "key", false, (j) => numbers.sees(q, j) && !(isSelf && j === q));
  const [a, b] = ["a", "b"].map((side) => numbers.sharesOf(side, q)?.[k]);
  const share = (w) => coloured("weight", w === 0 && Number.isNaN(numbers.row("hide", q)?.[k]) ? "hidden" : percent(w));
  if (b !== undefined && numbers.sees(q, k)) return [...who, " looks at ", ...whom, ": ", share(a), " in A, ", share(b), " in B"];
  if (!numbers.sees(q, k)) return [...who, " cannot see ", ...whom];
  const row = numbers.row("share", q);
  if (!row) {
    const scores = numbers.row("match", q) ?? numbers.row("scale", q);
    return scores ? [...who, " and ", ...whom, numbers.isDifference ? ": score, B − A " : ": score ", coloured("weight", said(scores[k]))] : [...who, " and ", ...whom, " …"];
  }
  return [...who, row[k] < 0.005 ? " hardly looks at " : " looks at ", ...whom, ": ", coloured("weight", percent(row[k]))];
}

/** The label of a patch on a map, which is its row and column. */
export const place = (label) => label.replace(/^patch (?=\d)/, "");

// What stands out about the pair itself.
function insight(numbers, q, k) {
  const { sent, keys, isSelf } = numbers;
  const [row, words] = [numbers.row("share", q), sent.queries];
  if (!row) return [];
  if (sent.why && q === sent.q && k === sent.k) return [sent.why];
  if (sent.random) return ["Random weights: this shows the mechanism, not language."];
  if (!numbers.sees(q, k)) return [`Hidden by ${sent.hides && q === sent.q && k === sent.k ? sent.hides : "the mask"}.`];
  const best = largestAt(row);
  if (row[k] < 0.02 && best !== k) return ["Most of its attention goes to ", ...named(keys, best, "key"), `: ${percent(row[best])}.`];
  if (!isSelf || [q, k].some((i) => place(words[i]) !== words[i])) return []; // patches have no order
  const lower = (i) => words[i]?.toLowerCase();
  if (k !== q && k > 0 && k - 1 < q && lower(k - 1) === lower(q)) return [`Earlier, “${words[k]}” followed “${words[k - 1]}”.`];
  if (k === q) return ["A token may look at itself."];
  if (k === 0) return ["Many heads rest on the first word when nothing matches."];
  if (k === q - 1) return ["It is the word just before."];
  return k < q ? [`It stands ${q - k} words earlier.`] : [k - q === 1 ? "It comes next." : `It comes ${k - q} words later.`];
}

const word = (words, i, role) => coloured(role, `“${words[i]}”`);

// What has changed from A to B, as parts.
function change(numbers, name, q, k) {
  const row = numbers.row(name, q);
  if (!row) return ["The difference comes with the next answer."];
  if (Number.isNaN(row[k])) return [`Hidden in A ${name === "share" ? "and" : "or"} in B: there is no difference.`];
  if (name !== "share") return ["B − A: ", coloured("number", numbers.isSent(name, q, k) && name !== "collect" ? signed(numbers.terms[name].shown) : signed(said(row[k]))), "."];
  const most = largestAt(Array.from(row, (x) => Math.abs(x) || 0));
  if (Math.abs(row[most]) < 0.0005) return ["In this row A and B are the same, or nearly."];
  const own = [coloured("number", points(row[k])), " points"];
  if (most === k) return ["B − A: ", ...own, ", the largest change of its row."];
  return ["B − A: ", ...own, ". In its row ", ...named(numbers.keys, most, "key"), ` changes most: ${points(row[most])}.`];
}

/** The caption of a scene, as parts. */
export function caption(numbers, scene, q, k, column) {
  const { sent, keys, formula } = numbers;
  if (numbers.isDifference) return change(numbers, scene, q, scene === "collect" ? column : k);
  const at = (name) => { const row = numbers.row(name, q); return row ? said(row[k]) : "…"; };
  if (scene === "match") {
    const size = numbers.vector("query", q)?.length;
    const score = coloured("number", at("match"));
    if (!numbers.has("match")) return ["The scores of this source are not recorded."];
    if (sent.score === "dot" && size) return [`${size} numbers of `, word(sent.queries, q, "query"), ` times ${size} of `, word(keys, k, "key"), ", added up: ", score, "."];
    return ["How well ", word(sent.queries, q, "query"), " and ", word(keys, k, "key"), " match: ", score, "."];
  }
  if (scene === "scale") {
    if (!numbers.has("scale")) return ["The scores stay as they are: nothing divides them."];
    const result = coloured("number", at("scale"));
    const raw = numbers.row("match", q);
    const isPlain = raw && Math.abs(raw[k] / numbers.divisor - numbers.row("scale", q)[k]) <= 1e-4 * Math.abs(raw[k]) + 1e-6;
    if (!isPlain) return ["From the score to what the normalizer reads: ", result, "."];
    const root = Number.isInteger(formula.divisor ** 2) || Math.abs(Math.round(formula.divisor ** 2) - formula.divisor ** 2) < 1e-6;
    const divisor = root ? `√${Math.round(formula.divisor ** 2)}` : said(formula.divisor);
    if (formula.temperature === 1) return [`Divided by ${divisor} = ${said(formula.divisor)}, so that no word drowns the others: `, result, "."];
    return [`Divided by ${divisor} × temperature ${said(formula.temperature)}: `, result, "."];
  }
  if (scene === "hide") {
    const count = keys.reduce((sum, _, i) => sum + !numbers.sees(q, i), 0);
    if (!count) return [sent.mask && sent.mask !== "none" ? `The mask hides nothing from this word: it sees all ${numbers.m}.` : "No mask: every word sees every word."];
    return [`The mask hides ${count} ${count === 1 ? "word" : "words"} of ${numbers.m} from `, word(sent.queries, q, "query"), "."];
  }
  if (scene === "share") return insight(numbers, q, k);
  const output = numbers.row("collect", q);
  if (!output) return ["The values of this source are not recorded."];
  return ["Each word’s value, times its share, added up: number ", String(column), " of the new row is ", coloured("number", said(output[column])), "."];
}
