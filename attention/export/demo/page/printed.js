// Numbers as attention/printed.py prints them: with as few digits as let the result come out right.
//
// tests/test_demo.py compares every text with Python's.

const DIGITS = 4;
const MOST_DIGITS = 9; // what tells all numbers of single precision apart
const MOST_TERMS = 8;
const LARGE = 1e6;
const LONGEST = 70; // characters of the arithmetic in one line
const FEWEST = 3; // digits of a number in it

// The exact decimal digits of a number, rounded half to even to `keep` of them, and the power of ten of the first.
function rounded(value, keep) {
  const [mantissa, power] = Math.abs(value).toExponential(100).split("e");
  const digits = mantissa.replace(".", "");
  if (keep < 0) return { digits: "0", power: 0 };
  const rest = digits.slice(keep);
  const half = `5${"0".repeat(rest.length - 1)}`;
  const odd = keep > 0 && Number(digits[keep - 1]) % 2 === 1;
  const up = rest > half || (rest === half && odd) ? 1n : 0n;
  const kept = String(BigInt(digits.slice(0, keep) || "0") + up);
  const carried = kept.length > Math.max(keep, 1) ? 1 : 0;
  if (keep === 0) return { digits: kept, power: Number(power) + 1 };
  return { digits: kept.slice(0, keep), power: Number(power) + carried };
}

const withoutZeros = (text) => (text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text);

// With so many significant digits, as Python's "g" writes it.
function significant(value, count) {
  const { digits, power } = rounded(value, count);
  const sign = value < 0 ? "-" : "";
  if (power < -4 || power >= count) return { text: `${sign}${digits[0]}.${digits.slice(1)}`, exponent: power };
  if (power < 0) return { text: `${sign}0.${"0".repeat(-power - 1)}${digits}` };
  return { text: `${sign}${digits.slice(0, power + 1)}.${digits.slice(power + 1)}` };
}

const valueOf = ({ text, exponent = 0 }) => Number(`${text}e${exponent}`);

export function number(value, digits = DIGITS) {
  if (value === 0) return { text: "0", value: 0 };
  if (!Number.isFinite(value)) return { text: value < 0 ? "−∞" : "∞", value };
  let fewest = DIGITS;
  const wanted = valueOf(significant(value, digits));
  while (fewest < digits && valueOf(significant(value, fewest)) !== wanted) fewest += 1;
  const found = significant(value, Math.min(fewest, digits));
  const text = withoutZeros(found.text) + (found.exponent === undefined ? "" : `e${found.exponent}`);
  return { text: text.replaceAll("-", "−"), value: valueOf(found) };
}

export const shown = (value) => number(value).text;

// A negative one stands in brackets.
export function factor(value, digits) {
  const one = number(value, digits);
  return value < 0 ? { ...one, text: `(${one.text})` } : one;
}

export function product(one, other, digits) {
  const [a, b] = [factor(one, digits), factor(other, digits)];
  return { text: `${a.text}·${b.text}`, value: a.value * b.value };
}

export function quotient(above, below) {
  return { text: `${above.text} / ${below.text}`, value: above.value / below.value };
}

// A number in an exponent, with so many decimals.
function exponent(value, places) {
  if (value === 0 || !(Math.abs(value) < LARGE)) return number(value, places);
  const decimals = Math.max(DIGITS, places);
  const [, power] = value.toExponential().split("e");
  const { digits, power: first } = rounded(value, Number(power) + 1 + decimals);
  const scaled = Number(digits) === 0 ? "0" : digits.padEnd(first + 1 + decimals, "0");
  const padded = scaled.padStart(decimals + 1, "0");
  const fixed = `${padded.slice(0, -decimals)}.${padded.slice(-decimals)}`;
  const signed = value < 0 && Number(fixed) !== 0 ? `-${fixed}` : fixed;
  return { text: withoutZeros(signed).replace("-", "−"), value: Number(signed) };
}

// e to one number less another.
export function power(one, less, places) {
  const [a, b] = [exponent(one, places), exponent(less, places)];
  return { text: `e^(${a.text} − ${less < 0 ? `(${b.text})` : b.text})`, value: Math.exp(a.value - b.value) };
}

// The sum of many numbers without what rounding loses (Shewchuk 1997), as Python's math.fsum.
export function sum(values) {
  const parts = [];
  for (const value of values) {
    let x = value;
    let many = 0;
    for (const part of [...parts]) {
      const [large, small] = Math.abs(x) < Math.abs(part) ? [part, x] : [x, part];
      const high = large + small;
      const low = small - (high - large);
      if (low) parts[many++] = low;
      x = high;
    }
    parts.length = many;
    parts.push(x);
  }
  return parts.reduceRight((total, part) => total + part, 0);
}

// Whether a result, rounded to the digits that are shown of a number, is what is shown.
function agrees(result, value) {
  return [result, result * (1 - 1e-12), result * (1 + 1e-12)].some((near) => shown(near) === shown(value));
}

// What `make` prints with the fewest digits that let the number come out as it is shown, or else misses by one in the last.
function fitting(make, value) {
  const tried = [];
  for (let digits = FEWEST; digits <= MOST_DIGITS; digits += 1) {
    const printed = make(digits);
    if (agrees(printed.value, value)) return { ...printed, sign: "=" };
    tried.push({ ...printed, sign: "≈" });
  }
  const aim = number(value).value;
  const unit = aim && Number.isFinite(aim) ? 10 ** (Number(aim.toExponential().split("e")[1]) - DIGITS + 1) : 1e-12;
  return tried.find((one) => Math.abs(one.value - aim) <= unit * (1 + 1e-9)) ?? tried.at(-1);
}

// The first of several ways to write the arithmetic of a number that is short enough, or the last.
export function brief(ways, value) {
  const fit = ways.filter((make) => make(FEWEST).text.length <= LONGEST);
  let found;
  for (const make of fit.length ? fit : ways.slice(-1)) {
    found = fitting(make, value);
    if (found.text.length <= LONGEST) break;
  }
  return { short: found.text, sign: found.sign };
}

// The largest in size of many summands, in their order; what is left is never a single one.
function largest(values, most) {
  const all = values.map((_, i) => i);
  if (values.length <= most + 1) return all;
  return all.sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, most).sort((a, b) => a - b);
}

// The ways to write a sum: `piece(i, digits)` prints one of its values.
export function sums(values, piece) {
  const something = values.filter((value) => value !== 0).length;
  const most = something > 0 && something < values.length - 1 ? something : values.length;
  const counts = Array.from({ length: Math.min(most, MOST_TERMS) }, (_, i) => Math.min(most, MOST_TERMS) - i);
  return counts.filter((count) => values.length - count !== 1).map((count) => {
    const few = largest(values, count);
    const left = values.length - few.length;
    const others = sum(values.filter((_, i) => !few.includes(i)));
    return (digits) => {
      const parts = few.map((i) => piece(i, digits));
      const rest = { text: `… (${left} more: ${number(others, digits).text})`, value: number(others, digits).value };
      const whole = left ? [...parts, rest] : parts;
      return { text: whole.map(({ text }) => text).join(" + "), value: whole.reduce((all, one) => all + one.value, 0) };
    };
  });
}
