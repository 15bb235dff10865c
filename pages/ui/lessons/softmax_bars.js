// A row of numbers and its softmax as bars; its own temperature slider works without the server.

import { weights } from "./kernel.js";
import { create } from "./elements.js";

// Logarithmic steps of the slider.
const POSITIONS = 200;
const temperatureAt = ({ low, high }, position) => Math.round(low * (high / low) ** (position / POSITIONS) * 100) / 100;
// The position of temperature 1.
const startPosition = ({ low, high }) => Math.round((Math.log(1 / low) / Math.log(high / low)) * POSITIONS);

const FORMULA = { score: "dot", divisor: 1, normalizer: "softmax", mask: { kind: "none" } };

const softmax = (row, temperature) => weights(Float64Array.from(row), row.length, { ...FORMULA, temperature });

const formatWeight = (number) => (number !== 0 && Math.abs(number) < 0.0005 ? number.toExponential(2) : number.toFixed(4));

const cell = (className, ...parts) => create("span", { className }, ...parts);

// A line for each number: the number, the number divided by the temperature, its weight as a bar and as a number.
function drawLines(root, row) {
  root.dataset.row = JSON.stringify(row);
  const lines = row.map((number) => (
    cell("line", cell("number", `${number}`), cell("divided"), cell("bar", create("i")), cell("weight"))
  ));
  root.querySelector(".lines").replaceChildren(...lines);
  root.querySelector(".lines").classList.toggle("few", row.length <= 8); // in one column, bars are easy to compare
}

function show(root, data) {
  const { row } = data;
  const temperature = temperatureAt(data, Number(root.querySelector("input").value));
  const weightsOfRow = softmax(row, temperature);
  root.querySelector("output").textContent = temperature.toFixed(2);
  root.querySelector("input").setAttribute("aria-valuetext", temperature.toFixed(2));
  root.weights = weightsOfRow;
  root.querySelectorAll(".line").forEach((line, i) => {
    const divided = Number((row[i] / temperature).toPrecision(4));
    line.querySelector(".divided").textContent = `÷ ${temperature.toFixed(2)} = ${divided}`;
    line.querySelector("i").style.width = `${100 * weightsOfRow[i]}%`;
    line.querySelector(".weight").textContent = formatWeight(weightsOfRow[i]);
  });
}

function announce(root, row) {
  const largestWeight = Math.max(...root.weights);
  const largest = row[root.weights.indexOf(largestWeight)];
  const { textContent: temperature } = root.querySelector("output");
  const result = `the largest number, ${largest}, gets ${formatWeight(largestWeight)} of 1.`;
  root.querySelector("p").textContent = `At temperature ${temperature} ${result}`;
}

export default function render({ data, parentElement }) {
  const { row } = data;
  const root = parentElement.querySelector(".softmax-bars");
  const input = root.querySelector("input");
  if (root.dataset.row === JSON.stringify(row)) return;
  if (!root.dataset.row) Object.assign(input, { min: 0, max: POSITIONS, step: 1, value: startPosition(data) });
  drawLines(root, row);
  input.oninput = () => show(root, data);
  input.onchange = () => announce(root, row);
  show(root, data);
  announce(root, row);
}
