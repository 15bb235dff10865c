// Prints numbers as attention/base/printed.py does: with the fewest digits for which the arithmetic gives the printed result.
//
// tests/demo/test_demo.py compares every text with Python's.

const DIGITS = 4;
const MOST_DIGITS = 9; // enough to distinguish all numbers of single precision
const MOST_TERMS = 8;
const LARGE = 1e6;
const MAX_LENGTH = 70; // characters of the arithmetic in one line
const MIN_DIGITS = 3; // of a number in this line

// The exact decimal digits of a number, rounded half to even to `count` of them, and the power of ten of the first.
function roundDigits(value, count) {
  const [mantissa, power] = Math.abs(value).toExponential(100).split("e");
  const digits = mantissa.replace(".", "");
  if (count < 0) return { digits: "0", power: 0 };
  const dropped = digits.slice(count);
  const half = `5${"0".repeat(dropped.length - 1)}`;
  const isOdd = count > 0 && Number(digits[count - 1]) % 2 === 1;
  const increment = dropped > half || (dropped === half && isOdd) ? 1n : 0n;
  const roundedDigits = String(BigInt(digits.slice(0, count) || "0") + increment);
  const carry = roundedDigits.length > Math.max(count, 1) ? 1 : 0;
  if (count === 0) return { digits: roundedDigits, power: Number(power) + 1 };
  return { digits: roundedDigits.slice(0, count), power: Number(power) + carry };
}

const withoutZeros = (text) => (text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text);

// A number with `count` significant digits, as Python's "g" writes it.
function significant(value, count) {
  const { digits, power } = roundDigits(value, count);
  const sign = value < 0 ? "-" : "";
  if (power < -4 || power >= count) return { text: `${sign}${digits[0]}.${digits.slice(1)}`, exponent: power };
  if (power < 0) return { text: `${sign}0.${"0".repeat(-power - 1)}${digits}` };
  return { text: `${sign}${digits.slice(0, power + 1)}.${digits.slice(power + 1)}` };
}

const valueOf = ({ text, exponent = 0 }) => Number(`${text}e${exponent}`);

export function number(value, digits = DIGITS) {
  if (value === 0) return { text: "0", value: 0 };
  if (!Number.isFinite(value)) return { text: value < 0 ? "−∞" : "∞", value };
  let needed = DIGITS;
  const target = valueOf(significant(value, digits));
  while (needed < digits && valueOf(significant(value, needed)) !== target) needed += 1;
  const printed = significant(value, Math.min(needed, digits));
  const text = withoutZeros(printed.text) + (printed.exponent === undefined ? "" : `e${printed.exponent}`);
  return { text: text.replaceAll("-", "−"), value: valueOf(printed) };
}

export const formatNumber = (value) => number(value).text;

// A factor: a negative number is in parentheses.
export function factor(value, digits) {
  const printed = number(value, digits);
  return value < 0 ? { ...printed, text: `(${printed.text})` } : printed;
}

export function product(left, right, digits) {
  const [a, b] = [factor(left, digits), factor(right, digits)];
  return { text: `${a.text}·${b.text}`, value: a.value * b.value };
}

export function quotient(numerator, denominator) {
  return { text: `${numerator.text} / ${denominator.text}`, value: numerator.value / denominator.value };
}

// A number in an exponent, with `places` decimals.
function exponent(value, places) {
  if (value === 0 || !(Math.abs(value) < LARGE)) return number(value, places);
  const decimals = Math.max(DIGITS, places);
  const [, power] = value.toExponential().split("e");
  const { digits, power: first } = roundDigits(value, Number(power) + 1 + decimals);
  const scaled = Number(digits) === 0 ? "0" : digits.padEnd(first + 1 + decimals, "0");
  const padded = scaled.padStart(decimals + 1, "0");
  const fixed = `${padded.slice(0, -decimals)}.${padded.slice(-decimals)}`;
  const signed = value < 0 && Number(fixed) !== 0 ? `-${fixed}` : fixed;
  return { text: withoutZeros(signed).replace("-", "−"), value: Number(signed) };
}

// e to the difference of two numbers.
export function power(minuend, subtrahend, places) {
  const [a, b] = [exponent(minuend, places), exponent(subtrahend, places)];
  return { text: `e^(${a.text} − ${subtrahend < 0 ? `(${b.text})` : b.text})`, value: Math.exp(a.value - b.value) };
}

// The correctly rounded sum of many numbers (Shewchuk 1997), as Python's math.fsum.
export function sum(values) {
  const parts = [];
  for (const value of values) {
    let x = value;
    let count = 0;
    for (const part of [...parts]) {
      const [large, small] = Math.abs(x) < Math.abs(part) ? [part, x] : [x, part];
      const high = large + small;
      const low = small - (high - large);
      if (low) parts[count++] = low;
      x = high;
    }
    parts.length = count;
    parts.push(x);
  }
  return parts.reduceRight((total, part) => total + part, 0);
}

// Whether a result is printed like the value.
function agrees(result, value) {
  return [result, result * (1 - 1e-12), result * (1 + 1e-12)].some((near) => formatNumber(near) === formatNumber(value));
}

// The arithmetic that `print` writes with the fewest digits for which its result is printed like the value, or misses it by one in the last digit.
function fewestDigits(print, value) {
  const attempts = [];
  for (let digits = MIN_DIGITS; digits <= MOST_DIGITS; digits += 1) {
    const printed = print(digits);
    if (agrees(printed.value, value)) return { ...printed, sign: "=" };
    attempts.push({ ...printed, sign: "≈" });
  }
  const target = number(value).value;
  const unit = target && Number.isFinite(target) ? 10 ** (Number(target.toExponential().split("e")[1]) - DIGITS + 1) : 1e-12;
  return attempts.find((attempt) => Math.abs(attempt.value - target) <= unit * (1 + 1e-9)) ?? attempts.at(-1);
}

// The first of several ways to write the arithmetic that is short enough, or the last one.
export function brief(ways, value) {
  const shortWays = ways.filter((print) => print(MIN_DIGITS).text.length <= MAX_LENGTH);
  let written;
  for (const print of shortWays.length ? shortWays : ways.slice(-1)) {
    written = fewestDigits(print, value);
    if (written.text.length <= MAX_LENGTH) break;
  }
  return { short: written.text, sign: written.sign };
}

// The indices of the `count` summands of largest magnitude, in order; never all but one.
function largest(values, count) {
  const indices = values.map((_, i) => i);
  if (values.length <= count + 1) return indices;
  return indices.sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, count).sort((a, b) => a - b);
}

// The ways to write a sum; `print(i, digits)` writes one of its summands.
export function sumWays(values, print) {
  const nonzeroCount = values.filter((value) => value !== 0).length;
  const maxTerms = nonzeroCount > 0 && nonzeroCount < values.length - 1 ? nonzeroCount : values.length;
  const counts = Array.from({ length: Math.min(maxTerms, MOST_TERMS) }, (_, i) => Math.min(maxTerms, MOST_TERMS) - i);
  return counts.filter((count) => values.length - count !== 1).map((count) => {
    const indices = largest(values, count);
    const othersCount = values.length - indices.length;
    const others = sum(values.filter((_, i) => !indices.includes(i)));
    return (digits) => {
      const parts = indices.map((i) => print(i, digits));
      const remainder = { text: `… (${othersCount} more: ${number(others, digits).text})`, value: number(others, digits).value };
      const terms = othersCount ? [...parts, remainder] : parts;
      return { text: terms.map(({ text }) => text).join(" + "), value: terms.reduce((total, term) => total + term.value, 0) };
    };
  });
}
