// The named stretches of a text, above it: a strip whose parts are as wide as they have tokens, with the share of its weight that the
// chosen query gives to each. A click chooses the strongest key of a stretch.

import { create } from "./elements.js";
import { largestAt, percent, points } from "./screen_numbers.js";

const COLORS = ["yes", "no", "point", "other-point"]; // of attention/pictures/look.py; equal names share one

export class SpanStrip {
  parts = [];

  // `choose(knobs)` chooses a key.
  constructor(root, choose) { Object.assign(this, { root, choose }); }

  // Draws the strip of stretches [name, first, last] over `count` tokens, and marks the chips of their words.
  draw(spans = [], count, chips) {
    const kinds = [...new Set(spans.map(([name]) => name.replace(/ \d+$/, "")))];
    this.parts = [];
    this.root.hidden = !spans.length;
    this.root.closest(".screen").classList.toggle("spanned", spans.length > 0);
    let end = 0;
    const pieces = [];
    const gap = (until) => { if (until > end) pieces.push(create("span", { className: "unnamed", title: `${until - end} tokens without a name`, style: `flex-grow: ${until - end}` })); };
    for (const [name, first, last] of spans) {
      gap(first);
      end = last + 1;
      const color = `var(--lab-${COLORS[kinds.indexOf(name.replace(/ \d+$/, "")) % COLORS.length]})`;
      const label = create("span", { className: "name", textContent: name, dir: "auto" });
      const share = create("span", { className: "of" });
      const button = create("button", { type: "button", style: `flex-grow: ${end - first}; --span: ${color}` }, label, share);
      const part = { name, first, last, button, share };
      button.addEventListener("click", () => this.choose({ k: this.strongest(part) }));
      this.parts.push(part);
      pieces.push(button);
      for (let i = first; i < end; i += 1) { chips[i]?.classList.add("named"); chips[i]?.style.setProperty("--span", color); }
    }
    gap(count);
    this.root.replaceChildren(...pieces);
  }

  strongest({ first, last }) {
    const row = this.numbers?.row("share", this.q);
    return first + (row ? Math.max(0, largestAt(Array.from(row.slice(first, last + 1), Math.abs), (i) => this.numbers.sees(this.q, first + i))) : 0);
  }

  // Shows what the chosen query gives to each stretch, and which holds the chosen key.
  paint(numbers, q, k) {
    Object.assign(this, { numbers, q });
    const row = numbers.row("share", q);
    for (const { name, first, last, button, share } of this.parts) {
      const sum = row ? Array.from(row.slice(first, last + 1)).reduce((total, value) => total + (Number.isFinite(value) ? value : 0), 0) : 0;
      const text = row ? (numbers.isDifference ? points(sum) : percent(sum)) : "";
      if (share.textContent !== text) share.textContent = text;
      button.title = `${name}: tokens ${first} to ${last}${text && `, ${text} of this row`}`;
      button.ariaLabel = `Choose the strongest key of ${button.title}`;
      button.classList.toggle("answers", k >= first && k <= last);
      button.classList.toggle("asks", q >= first && q <= last);
    }
  }
}
