// The stage of a first screen: what happens to one row at each moment of the film. Each scene at rest is its last picture.

import { write } from "./elements.js";
import { MOST_BARS, between, brief, clamp, ease, largest, largestAt, percent, points, said, signed } from "./screen_numbers.js";
import { css, mix } from "./screen_look.js";
import { escape } from "./screen_map.js";

/** Draws the stage. */
export class Stage {
  /** Where the sum and the values stand, for what flies. */
  places = {};

  constructor(svg, choose) {
    this.svg = svg;
    svg.addEventListener("click", (event) => {
      const { k } = event.target.dataset;
      if (k !== undefined) choose(Number(k));
    });
  }

  /** Reads the size; what is painted fits into it. */
  measure() { [this.width, this.height] = [this.svg.clientWidth, this.svg.clientHeight]; }

  paint(numbers, look, { scene, p, q, k, column, before }, isProjected) {
    const { width, height } = this;
    if (!width || height < 40) return;
    Object.assign(this, { numbers, look, q, k, column, before, isProjected, places: {} });
    this.parts = [];
    const draw = (name, opacity, at) => {
      this.parts.push(`<g opacity="${opacity.toFixed(3)}">`);
      if (numbers.isDifference) this.change(name);
      else if (name === "match" && this.matches()) this.match(at);
      else if (name === "collect") this.collect(at);
      else this.bars(name, at);
      this.parts.push("</g>");
    };
    const previous = p < 1 && { scale: "match", collect: "share" }[scene];
    const x = previous && numbers.has(previous) ? ease(0, 0.2, p) : 1;
    if (x < 1) draw(previous, 1 - x, 1);
    if (x > 0) draw(scene, x, p);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    write(this.svg, this.parts.join(""));
  }

  color(role) { return css(this.look[role]); }

  text(x, y, text, { size = "axis", anchor = "start", role = "soft", bold = false, opacity = 1, on = "" } = {}) {
    const halo = on ? "" : "class=\"halo\"";
    this.parts.push(`<text ${halo} x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}" style="font-size:${this.look.size[size]}px;fill:${on || this.color(role)};font-weight:${bold ? 700 : 400};opacity:${opacity.toFixed(2)}">${text}</text>`);
  }

  rect(x, y, width, height, fill, more = "") {
    this.parts.push(`<rect x="${x.toFixed(1)}" y="${y.toFixed(1)}" width="${Math.max(0, width).toFixed(1)}" height="${Math.max(0, height).toFixed(1)}" fill="${fill}" ${more}/>`);
  }

  words(role) { return role === "query" ? this.numbers.sent.queries : this.numbers.keys; }

  word(role, i, room) {
    const word = this.words(role)[i] ?? "";
    let text = word;
    while (room && text.length > 2 && this.look.width(text, this.look.size.axis) > room) text = `${text.slice(0, -2)}…`;
    return escape(text);
  }

  matches() { return this.numbers.products(this.q, this.k); }

  // The pair's vectors, their products, and the sum that grows.
  match(p) {
    const { numbers, look, q, k, width, height } = this;
    const { axis, label, word } = look.size;
    const [a, b] = [numbers.vector("query", q), numbers.vector("key", k)];
    const products = this.matches();
    const count = products.length;
    const names = [`Q ${this.words("query")[q]}`, `K ${this.words("key")[k]}`];
    const left = Math.min(width * 0.3, Math.max(look.width("running sum", axis), ...names.map((name) => look.width(name, label, 700))) + 10);
    const each = (width - left - 4) / count;
    const tall = this.isProjected ? 28 : 20;
    const [y1, y2] = [2, 2 + tall + 6];
    const top = y2 + tall + 8;
    const foot = height - 6;
    const middle = top + (foot - top) * 0.27;
    const reach = (foot - top) * 0.24;
    let run = 0;
    const sums = products.map((x) => { run += x; return run; });
    const [low, high] = [Math.min(0, ...sums), Math.max(0, ...sums)];
    const level = (x) => between(foot - 4, top + (foot - top) * 0.56, (x - low) / (high - low || 1));
    const here = (i) => (p >= 1 ? 1 : ease(0.02 + (0.14 * i) / count + 0.1, 0.02 + (0.14 * i) / count + 0.13, p));
    const done = Math.floor(count * ease(0.3, 0.8, p) + 1e-6);
    this.places.vectors = { left, each, tall, y1, y2 };
    const room = left - 28;
    this.text(0, y1 + tall * 0.74, `<tspan font-style="italic">Q</tspan> ${this.word("query", q, room)}`, { size: "label", role: "query", bold: true });
    this.text(0, y2 + tall * 0.74, `<tspan font-style="italic">K</tspan> ${this.word("key", k, room)}`, { size: "label", role: "key", bold: true });
    const strip = (vector, y, limit) => vector.forEach((x, i) => this.rect(left + i * each, y, each + 0.3, tall, css(look.signed(x, limit)), `opacity="${here(i).toFixed(2)}"`));
    strip(Array.from(a), y1, numbers.stripLimit("query"));
    strip(Array.from(b), y2, numbers.stripLimit("key"));
    const zero = level(0);
    if (foot - top > 60) {
      this.text(0, middle + 5, "products");
      this.text(0, zero + (zero > foot - 16 ? -2 : 5), "running sum");
    }
    this.rect(left, middle - 0.5, width - left - 4, 1, this.color("line"));
    this.rect(left, zero - 0.5, width - left - 4, 1, this.color("line"));
    const most = largest(products) || 1;
    let path = "";
    for (let i = 0; i < count; i += 1) {
      const part = i < done ? 1 : i === done && p < 1 ? 0.5 : 0;
      if (!part) break;
      const x = left + i * each;
      const bar = (Math.abs(products[i]) / most) * reach * part;
      this.rect(x + each * 0.1, products[i] > 0 ? middle - bar : middle, each * 0.8, bar, css(look.signed(products[i] > 0 ? 0.8 : -0.8, 1)));
      if (i < done) path += `${path ? "L" : `M${left} ${zero.toFixed(1)}L`}${x.toFixed(1)} ${level(sums[i]).toFixed(1)}L${(x + each).toFixed(1)} ${level(sums[i]).toFixed(1)}`;
    }
    if (!done) return;
    const [xe, ye] = [left + done * each, level(sums[done - 1])];
    const hue = this.color("weight");
    this.parts.push(`<path d="${path}L${xe.toFixed(1)} ${zero.toFixed(1)}Z" fill="${hue}" opacity=".14"/><path d="${path}" fill="none" stroke="${hue}" stroke-width="2"/><circle cx="${xe}" cy="${ye}" r="4" fill="${hue}"/>`);
    const isWide = done * each > 90;
    const sum = done === count ? (numbers.row("match", q)?.[k] ?? sums[count - 1]) : sums[done - 1];
    const isTall = Math.abs(ye - zero) > word + 10;
    this.text(isWide ? xe - 10 : xe + 8, isTall && isWide ? Math.max(ye, zero) - 6 : Math.min(ye, zero) - 7, said(sum), { size: "word", role: "ink", bold: true, anchor: isWide ? "end" : "start" });
    if (done < count && p < 1) this.rect(left + done * each - 1, y1 - 2, each + 2, y2 + tall - y1 + 4, "none", `stroke="${this.color("ink")}" stroke-width="2" rx="2"`);
    this.places.sum = [xe, ye];
  }

  // The row as bars: scores, divided scores, what the mask leaves, shares.
  bars(scene, p) {
    const { numbers, look, q, k, width, height, before } = this;
    const { axis, label, text } = look.size;
    const shares = numbers.row("share", q);
    const raw = numbers.row("match", q);
    const scaled = numbers.row("scale", q) ?? raw; // null for a source with weights alone, whose bars have nothing to begin with
    const isShare = scene === "share";
    const kept = numbers.barsOf(q, k, isShare && shares ? "share" : numbers.has("match") ? "match" : numbers.has("scale") ? "scale" : "share");
    if (!kept.length || (!scaled && !shares)) return this.text(0, height / 2, "These numbers come with the next answer.", { size: "label" });
    const left = axis * 2.9;
    const each = (width - left) / kept.length;
    const has = (i) => numbers.sees(q, i);
    const dense = Math.max(...kept.map((i) => look.width(this.words("key")[i], axis))) > each * 1.12;
    const foot = height - axis * 1.5 - 2;
    const start = scene === "match" ? raw : scaled;
    // The axis comes nearer after the division, so that the bars fill the stage again.
    const nearer = raw && scaled ? largest(Array.from(raw)) / (largest(Array.from(scaled)) || 1) || 1 : 1;
    const ends = kept.map((i) => (raw ?? scaled ?? shares)[i]).filter(Number.isFinite);
    const [high, low] = [Math.max(0, ...ends), Math.min(0, ...ends)];
    const zoom = !raw || scene === "match" || scene === "scale" ? 1 : scene === "hide" ? between(1, nearer, ease(0.02, 0.32, p)) : nearer;
    const shape = isShare ? (scaled ? ease(0.02, 0.42, p) : 1) : 0;
    const unit = isShare ? ease(0.45, 1, p) : 0;
    const band = this.isProjected ? 44 : 28;
    const top = isShare ? between(axis + 6, band + axis * 2 + 6, ease(0, 0.3, p)) : axis + 8;
    const level = (x) => between(foot - axis - 4, top, (clamp(x * zoom, low, high) - low) / (high - low || 1));
    const zero = isShare ? between(level(0), foot, shape) : level(0);
    const shrink = scene === "scale" ? ease(0.28, 0.9, p) : 1;
    const grow = scene === "scale" && p < 1 ? ease(0, 0.26, p) : 1;
    const wipe = scene === "hide" ? ease(0.4, 0.95, p) : 1;
    const most = shares ? Math.max(...kept.map((i) => shares[i]).filter(Number.isFinite), 1e-12) : 1;
    const tallest = isShare && before ? between(1, most / Math.max(most, ...kept.map((i) => before[i] ?? 0)), unit) : 1;
    const room = Math.max(0, foot - top - axis - 2);
    const isLow = isShare && height < band + axis * 7; // no room for both: at rest there is only the bar of length one
    if (!isLow) this.rect(left, zero - 0.5, width - left, 1, this.color("edge"));
    if (!isShare) {
      for (const end of [high, low]) if (Math.abs(end) > 0.12 * (high - low)) this.text(left - 6, level(end / zoom) + 4, brief(end / zoom), { anchor: "end" });
      this.text(left - 6, zero + 4, "0", { anchor: "end" });
    }
    let gathered = 0;
    for (const [at, i] of kept.entries()) {
      const x = left + at * each + each * 0.16;
      const wide = each * 0.68;
      const mine = i === k;
      const isHidden = (scene === "hide" || isShare) && !has(i) && (isShare || (at + 0.5) / kept.length > 1 - wipe);
      const outline = mine ? `stroke="${this.color("ink")}" stroke-width="2"` : "";
      if (isLow && unit === 1) {
        if (has(i)) this.lieDown({ i, share: shares[i], gathered, x, wide, yy: 0, hh: 0, band, left, at, count: kept.length, p, outline });
        gathered += has(i) ? shares[i] : 0;
        continue;
      }
      if (isHidden) this.parts.push(`<circle cx="${(x + wide / 2).toFixed(1)}" cy="${(isShare ? foot - 6 : zero).toFixed(1)}" r="2.5" fill="${this.color("dot")}"/>`);
      else {
        const value = scaled ? (scene === "scale" && raw ? between(raw[i], scaled[i], shrink) * grow : start[i]) : 0;
        const y = level(value);
        const [upper, lower] = [Math.min(y, zero), Math.max(y, zero)];
        const share = shares ? shares[i] : 0;
        const shareTop = foot - (share / most) * room * tallest;
        const [yy, hh] = [between(upper, shareTop, shape), between(lower - upper, foot - shareTop, shape)];
        const signed = look.signed(value > 0 ? 0.75 : -0.75, 1);
        const fill = isShare ? mix(signed, look.share(0.12 + 0.88 * share), shape) : signed;
        if (scene === "scale" && shrink > 0 && raw) this.rect(x, Math.min(level(raw[i]), zero), wide, Math.abs(level(raw[i]) - zero), "none", `rx="3" stroke="${this.color("edge")}" stroke-dasharray="2 3" opacity="${shrink.toFixed(2)}"`);
        this.rect(x, yy, wide, Math.max(1, hh), css(fill), `rx="3" data-k="${i}" class="bar" ${outline}`);
        if (isShare && before && unit > 0.95) {
          const old = ((before[i] ?? 0) / Math.max(most, ...kept.map((j) => before[j] ?? 0))) * room;
          this.rect(x - 2.5, foot - old, wide + 5, old, "none", `rx="4" stroke="${this.color("soft")}" stroke-width="1.5" stroke-dasharray="3 3" pointer-events="none"`);
        }
        const isLarge = mine || (isShare && share >= 0.005);
        if (isShare && shape > 0.8 && isLarge && (mine || !dense || share > 0.03)) this.text(x + wide / 2, yy - 5, percent(share), { anchor: "middle", role: mine ? "ink" : "soft", bold: mine, size: mine ? "text" : "axis" });
        if (!isShare && (mine || !dense)) this.text(x + wide / 2, value >= 0 ? upper - 5 : lower + (mine ? text : axis) + 1, mine ? said(value) : brief(value), { anchor: "middle", role: mine ? "ink" : "soft", bold: mine, size: mine ? "text" : "axis" });
        if (unit > 0) this.lieDown({ i, share, gathered, x, wide, yy, hh, band, left, at, count: kept.length, p, outline });
        gathered += share;
      }
      const shows = !isShare ? !dense || mine : mine || (shares?.[i] >= 0.005 && !dense);
      if (shows) this.text(x + wide / 2, height - 4, this.word("key", i, mine ? each * 3 : each * 1.12), { anchor: "middle", role: mine ? "key" : "soft", bold: mine });
    }
    if (scene === "hide" && wipe > 0 && wipe < 1 && numbers.hidesFrom(q)) this.rect(left + (width - left) * (1 - wipe), 0, 2, foot + 4, this.color("ink"));
    const rest = shares ? shares.reduce((sum, w, i) => sum + (Number.isFinite(w) && !kept.includes(i) ? w : 0), 0) : 0;
    if (isShare && unit > 0.9) {
      const sum = shares.reduce((total, w) => total + (Number.isFinite(w) ? w : 0), 0);
      this.text(left - 6, band * 0.5 + axis * 0.36, `Σ = ${Math.abs(sum - 1) < 1e-4 ? "1" : said(sum)}`, { anchor: "end", opacity: ease(0.9, 1, unit) });
    }
    if (isShare && numbers.m > MOST_BARS && unit > 0.9 && rest > 0) this.text(width, band * 0.5 + axis * 0.36, `${numbers.m - kept.length} more: ${percent(rest)}`, { anchor: "end" });
    return undefined;
  }

  // The row of B − A as bars, up for more in B and down for less.
  change(name) {
    const { numbers, look, q, k, column, width, height } = this;
    const { axis, text } = look.size;
    const isOutput = name === "collect";
    const chosen = isOutput ? column : k;
    const kept = numbers.barsOf(q, chosen, name);
    if (!kept.length) { this.text(0, height / 2, "These numbers come with the next answer.", { size: "label" }); return; }
    const row = numbers.row(name, q);
    const each = width / kept.length;
    const [top, foot] = [text + 10, height - axis * 2 - text - 8];
    const ends = kept.map((i) => row[i]).filter(Number.isFinite);
    const [high, low] = [Math.max(0, ...ends), Math.min(0, ...ends)];
    const level = (x) => between(foot, top, (x - low) / (high - low || 1));
    const dense = isOutput || Math.max(...kept.map((i) => look.width(this.words("key")[i], axis))) > each * 1.12;
    this.rect(0, level(0) - 0.5, width, 1, this.color("edge"));
    for (const [at, i] of kept.entries()) {
      const [x, wide, mine] = [at * each + each * 0.16, each * 0.68, i === chosen];
      const middle = x + wide / 2;
      const style = { anchor: "middle", role: mine ? "ink" : "soft", bold: mine, size: mine ? "text" : "axis" };
      if (Number.isNaN(row[i])) this.parts.push(`<circle cx="${middle.toFixed(1)}" cy="${level(0).toFixed(1)}" r="2.5" fill="${this.color("dot")}"/>`);
      else {
        const y = level(row[i]);
        const fill = css(look.signed(0.75 * Math.sign(row[i]), 1));
        this.rect(x, Math.min(y, level(0)), wide, Math.max(1, Math.abs(y - level(0))), fill, `rx="3" ${isOutput ? "" : `data-k="${i}"`} class="bar" stroke="${this.color(mine ? "ink" : "line")}" stroke-width="${mine ? 2 : 1}"`);
        const says = !mine ? numbers.inCell(name, row[i]) : name === "share" ? points(row[i]) : signed(said(row[i]));
        if (mine || (!dense && says !== "0")) this.text(middle, row[i] < 0 ? y + (mine ? text : axis) + 2 : y - 5, says, style);
      }
      if (mine || !dense) this.text(middle, height - 4, isOutput ? `number ${i}` : this.word("key", i, mine ? each * 3 : each * 1.12), { anchor: "middle", role: mine ? (isOutput ? "ink" : "key") : "soft", bold: mine });
    }
  }

  // A bar lies down and joins the bar of length one.
  lieDown({ i, share, gathered, x, wide, yy, hh, band, left, at, count, p, outline }) {
    const { look, width } = this;
    const t = ease(0.45 + (0.25 * at) / count, 0.75 + (0.25 * at) / count, p);
    if (t <= 0) return;
    const [length, full] = [width - left, share * (width - left)];
    const thick = between(wide, band, t);
    const long = Math.max(0.8, between(hh, full - 1, t));
    const cx = between(x + wide / 2, left + gathered * length + full / 2, t);
    const cy = between(yy + hh / 2, band / 2, t * t * t);
    this.parts.push(`<rect class="bar" data-k="${i}" x="${(cx - thick / 2).toFixed(1)}" y="${(cy - long / 2).toFixed(1)}" width="${thick.toFixed(1)}" height="${long.toFixed(1)}" rx="${Math.min(4, long / 3).toFixed(1)}" transform="rotate(${(90 * ease(0, 0.75, t)).toFixed(1)} ${cx.toFixed(1)} ${cy.toFixed(1)})" fill="${css(look.share(0.12 + 0.88 * share))}" ${outline}/>`);
    const name = `\u2068${this.words("key")[i]}\u2069 ${percent(share)}`; // also where a word runs from right to left
    if (t > 0.95 && full > look.width(name, look.size.label, 600) + 14) this.text(cx, cy + look.size.label * 0.35, escape(name), { anchor: "middle", size: "label", bold: true, on: look.on(look.share(0.12 + 0.88 * share)) });
  }

  // The values, faded to their shares, poured number by number into the new row.
  collect(p) {
    const { numbers, look, q, k, column, width, height } = this;
    const { axis, label } = look.size;
    const [shares, output] = [numbers.row("share", q), numbers.row("collect", q)];
    if (!output) { this.text(0, height / 2, "The values of this source are not recorded.", { size: "label" }); return; }
    const order = shares ? Array.from(shares, (w, i) => [w, i]).filter(([w]) => w > 0).sort((a, b) => b[0] - a[0]) : [];
    const tallOut = this.isProjected ? 44 : 30;
    const free = height - tallOut - (this.isProjected ? 44 : 34);
    const most = clamp(Math.floor(free / (axis * 1.1)) - 1, 1, height < 200 ? 3 : 4); // rows that are readable, beside the one of all others
    const top = order.slice(0, most).filter(([, i]) => numbers.vector("value", i));
    const count = output.length;
    const list = top.map(([w, i]) => ({ name: this.word("key", i, 120), w, vector: Array.from(numbers.vector("value", i)), i }));
    const others = order.length - list.length;
    if (others > 0) {
      const w = order.reduce((sum, [share]) => sum + share, 0) - list.reduce((sum, each) => sum + each.w, 0);
      const vector = Array.from(output, (x, d) => (x - list.reduce((sum, each) => sum + each.w * each.vector[d], 0)) / (w || 1));
      list.push({ name: `${others} more`, w, vector, i: -1 });
    }
    const left = Math.min(width * 0.35, this.isProjected ? 230 : 124);
    const each = (width - left - 4) / count;
    const pitch = Math.min(this.isProjected ? 52 : 44, free / Math.max(1, list.length));
    const tall = pitch * 0.7;
    const limit = Math.max(numbers.limit("collect"), ...list.filter(({ i, w }) => i >= 0 && w > 0.1).map(({ vector }) => largest(vector)));
    const [here, fade] = [ease(0.16, 0.3, p), ease(0.3, 0.5, p)];
    const done = count * ease(0.52, 0.95, p);
    const foot = height - tallOut - 4;
    this.places.values = { left, each, tall, pitch, limit, list };
    list.forEach(({ name, w, vector, i }, at) => {
      const y = at * pitch + 2;
      const part = between(1, w, fade);
      const mine = i === k;
      this.text(0, y + tall * 0.5 + axis * 0.38, name, { size: "label", role: mine ? "key" : "ink", bold: mine });
      this.text(left - 10, y + tall * 0.5 + axis * 0.38, percent(w), { size: "label", anchor: "end", opacity: fade });
      vector.forEach((x, d) => {
        this.rect(left + d * each, y, each + 0.3, tall, css(look.signed(x * part, limit)), here < 1 ? `opacity="${here.toFixed(2)}"` : "");
        const since = (done - d) / 5;
        if (p < 1 && since > 0 && since < 1) this.rect(left + d * each, between(y, foot, since * since), each, tall * 0.6, css(look.signed(x * part, limit)), `opacity="${(0.9 - 0.5 * since).toFixed(2)}"`);
      });
    });
    this.text(0, foot + tallOut * 0.5 + label * 0.36, `new <tspan style="fill:${this.color("query")}">${this.word("query", q, 80)}</tspan>`, { size: "label", role: "ink", bold: true });
    this.text(left - 10, foot + tallOut * 0.5 + label * 0.36, "=", { size: "text", anchor: "end" });
    this.rect(left, foot, width - left - 4, tallOut, this.color("zero"), "rx=\"3\"");
    output.forEach((x, d) => { if (d < done) this.rect(left + d * each, foot, each + 0.3, tallOut, css(look.signed(x, limit))); });
    this.rect(left - 2, foot - 2, width - left, tallOut + 4, "none", `rx="5" stroke="${this.color("value")}" stroke-width="2.5"`);
    if (p < 1) return;
    const at = column ?? largestAt(Array.from(output, Math.abs));
    this.rect(left + at * each - 1.5, 0, each + 3, list.length * pitch - 2, "none", `rx="3" stroke="${this.color("ink")}" stroke-width="1.5"`);
    this.rect(left + at * each - 1.5, foot - 2, each + 3, tallOut + 4, "none", `rx="3" stroke="${this.color("ink")}" stroke-width="2.5"`);
    if (foot - list.length * pitch <= axis + 10) return;
    // Python's line: a sum whose printed numbers give the result.
    const { sent, terms } = numbers;
    const isSent = !numbers.live?.changed && q === sent.q && at === sent.column;
    const line = isSent && terms.collect.short ? `number ${at}: ${terms.collect.short} ${terms.collect.sign} ` : `number ${at} = `;
    const room = line.length * axis * 0.5 < width ? line : `number ${at} = `;
    this.text(width - 4, (list.length * pitch + foot) / 2 + axis * 0.4, `${escape(room)}<tspan style="font-weight:700;fill:${this.color("ink")}">${said(output[at])}</tspan>`, { anchor: "end" });
  }
}

/** What an opened card says: the arithmetic of one number in full, as HTML. */
export function arithmetic(name, numbers, look, q, k) {
  const keys = numbers.keys;
  const quoted = (words, i, role) => `<span class="${role}">“${escape(words[i])}”</span>`;
  if (name === "match" && !numbers.isDifference) {
    const products = numbers.products(q, k);
    if (!products) return `<p>${escape(numbers.terms.match.short)}</p>`;
    const [a, b] = [numbers.vector("query", q), numbers.vector("key", k)];
    const most = largest(products) || 1;
    return `<p>${quoted(numbers.sent.queries, q, "query")} · ${quoted(keys, k, "key")}: ${products.length} products, a strong colour counts most; their sum is <b>${said(numbers.row("match", q)[k])}</b></p><div class="products">`
      + products.map((x, i) => { const c = look.signed(x, most); return `<span style="background:${css(c)};color:${look.on(c)}" title="number ${i}: ${said(x)}">${factor(a[i])} · ${factor(b[i])}</span>`; }).join("") + "</div>";
  }
  const term = numbers.terms[name];
  const line = numbers.isSent(name, q, k) ? `<p class="line"><b>${escape(term.shown)}</b>${term.short ? ` ${term.sign} ${escape(term.short)}` : ""}</p>` : "";
  if (numbers.isDifference) return `${line}<p>The number of B less that of A: choose A or B to see how each is made.</p>`;
  if (name === "scale") return `${line}<p>A sum of ${numbers.vector("query", q)?.length ?? "many"} products grows like its square root. Without the division one word would take nearly all of every row; with it, close scores still share.</p>`;
  const scores = numbers.row("scale", q) ?? numbers.row("match", q);
  if (!scores || numbers.formula.normalizer !== "softmax") return line;
  const kept = numbers.barsOf(q, k, "share");
  const seen = Array.from(scores, (x, i) => (numbers.sees(q, i) ? x : -Infinity));
  const most = Math.max(...seen);
  const total = seen.reduce((sum, x) => sum + Math.exp(x - most), 0);
  return `${line}<p>Each score less the largest, ${said(most)}, as a power of e; together ${said(total)}:</p><div class="powers">`
    + kept.map((i) => `<div class="${i === k ? "mine" : ""}"><b>${escape(keys[i])}</b><br>${Number.isFinite(seen[i]) ? `e<sup>${said(seen[i] - most)}</sup><br>${said(Math.exp(seen[i] - most))}` : "hidden<br>0"}</div>`).join("") + "</div>";
}

const factor = (x) => (Math.abs(x) >= 9.95 ? x.toFixed(1) : x.toFixed(2)).replace("-", "−");
