// A row of numbers and its softmax as bars, with a temperature of its own that follows the hand without the server.

import { weights } from "./kernel.js";
import { made } from "./made.js";

// Even steps from cold to hot.
const PLACES = 200;
const temperatureAt = ({ low, high }, place) => Math.round(low * (high / low) ** (place / PLACES) * 100) / 100;
// The temperature 1, which changes nothing.
const start = ({ low, high }) => Math.round((Math.log(1 / low) / Math.log(high / low)) * PLACES);

const PLAIN = { score: "dot", divisor: 1, share: "softmax", mask: { kind: "none" } };

const sharesOf = (row, temperature) => weights(Float64Array.from(row), row.length, { ...PLAIN, temperature });

const written = (number) => (number !== 0 && Math.abs(number) < 0.0005 ? number.toExponential(2) : number.toFixed(4));

const cell = (className, ...parts) => made("span", { className }, ...parts);

// One line for each number: the number, divided by the temperature, its share as a bar and as a number.
function laidOut(root, row) {
  root.dataset.row = JSON.stringify(row);
  const lines = row.map((number) => (
    cell("line", cell("number", `${number}`), cell("divided"), cell("bar", made("i")), cell("share"))
  ));
  root.querySelector(".lines").replaceChildren(...lines);
  root.querySelector(".lines").classList.toggle("few", row.length <= 8); // one under the other, their bars compare
}

function show(root, data) {
  const { row } = data;
  const temperature = temperatureAt(data, Number(root.querySelector("input").value));
  const shares = sharesOf(row, temperature);
  root.querySelector("output").textContent = temperature.toFixed(2);
  root.querySelector("input").setAttribute("aria-valuetext", temperature.toFixed(2));
  root.shares = shares;
  root.querySelectorAll(".line").forEach((line, i) => {
    const divided = Number((row[i] / temperature).toPrecision(4));
    line.querySelector(".divided").textContent = `÷ ${temperature.toFixed(2)} = ${divided}`;
    line.querySelector("i").style.width = `${100 * shares[i]}%`;
    line.querySelector(".share").textContent = written(shares[i]);
  });
}

function say(root, row) {
  const share = Math.max(...root.shares);
  const largest = row[root.shares.indexOf(share)];
  const { textContent: temperature } = root.querySelector("output");
  const gets = `the largest number, ${largest}, gets ${written(share)} of 1.`;
  root.querySelector("p").textContent = `At temperature ${temperature} ${gets}`;
}

export default function render({ data, parentElement }) {
  const { row } = data;
  const root = parentElement.querySelector(".shares");
  const input = root.querySelector("input");
  if (root.dataset.row === JSON.stringify(row)) return;
  if (!root.dataset.row) Object.assign(input, { min: 0, max: PLACES, step: 1, value: start(data) });
  laidOut(root, row);
  input.oninput = () => show(root, data);
  input.onchange = () => say(root, row);
  show(root, data);
  say(root, row);
}
