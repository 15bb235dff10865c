// The small maps of a lesson as real tables: a screen reader and a keyboard go through them as through any other.

import { made } from "./made.js";

const MANY = 7; // columns from which a phone has no room for numbers
const SHORT = 2; // letters of a name that stands upright also there

const INK = { "#000000": "dark", "#ffffff": "light" };

function heading(text, scope) {
  return made("th", { scope, textContent: text, title: text });
}

// A cell, or the question mark of one that is kept back.
function cellOf(cell, where) {
  if (!cell) return made("td", { className: "kept", textContent: "?", title: `${where}: comes after your answer` });
  const [text, exact, ground, ink] = cell;
  const td = made("td", { textContent: text, title: `${where}: ${exact}`, className: INK[ink] ?? "" });
  td.style.setProperty("--ground", ground);
  return td;
}

// Frames what is true and what was guessed.
function mark(rows, figure) {
  for (const [row, column, whose] of figure.marks ?? []) {
    const td = rows[row - figure.first]?.cells[column + 1];
    if (!td) continue;
    td.classList.add(whose);
    td.append(made("span", { className: "spoken", textContent: whose === "truth" ? " (the answer)" : " (your answer)" }));
  }
}

function tableOf(figure) {
  const [down, across] = figure.sides;
  const table = made("table", { className: figure.columns.length > MANY ? "many" : "" });
  table.classList.toggle("short", figure.columns.every((name) => name.length <= SHORT));
  table.setAttribute("aria-label", `${figure.title}, ${down} by ${across}`);
  const head = made("tr");
  head.append(made("td", { ariaHidden: "true" }), ...figure.columns.map((name) => heading(name, "col")));
  const rows = figure.cells.map((cells, i) => {
    const row = made("tr");
    const place = (k) => `${figure.rows[i]} → ${figure.columns[k]}`;
    row.append(heading(figure.rows[i], "row"), ...cells.map((cell, k) => cellOf(cell, place(k))));
    return row;
  });
  const [top, body] = [made("thead"), made("tbody")];
  top.append(head);
  body.append(...rows);
  table.append(top, body);
  mark(rows, figure);
  return table;
}

// Lets one cell of a table be picked: by a click, or with the arrow keys and Enter.
function pickable(table, figure, picked) {
  const cells = [...table.tBodies[0].rows].map((row) => [...row.cells].slice(1));
  table.setAttribute("role", "grid");
  let at = [0, 0];
  const reach = (row, column) => {
    cells[at[0]][at[1]].tabIndex = -1;
    at = [Math.max(0, Math.min(row, cells.length - 1)), Math.max(0, Math.min(column, cells[0].length - 1))];
    cells[at[0]][at[1]].tabIndex = 0;
  };
  const pick = () => {
    for (const td of cells.flat()) td.removeAttribute("aria-selected");
    cells[at[0]][at[1]].setAttribute("aria-selected", "true");
    picked([at[0] + figure.first, at[1]], `${figure.rows[at[0]]} → ${figure.columns[at[1]]}`);
  };
  cells.forEach((row, i) => row.forEach((td, k) => {
    td.setAttribute("role", "gridcell");
    td.tabIndex = -1;
    td.addEventListener("click", () => { reach(i, k); td.focus({ preventScroll: true }); pick(); });
  }));
  reach(0, 0);
  table.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step) {
      reach(at[0] + step[0], at[1] + step[1]);
      cells[at[0]][at[1]].focus();
    } else if (event.key === "Enter" || event.key === " ") pick();
    else return;
    event.preventDefault();
  });
}

// Draws all tables of a message; `picked` is told which cell of the last one is picked, where that is asked.
export function drawTables(place, { figures }, picked) {
  const tables = figures.map(tableOf);
  place.replaceChildren(...tables.map((table, i) => {
    const [down, across] = figures[i].sides;
    const heading = made("p", { textContent: figures[i].title });
    heading.append(made("small", { textContent: `rows ${down}, columns ${across}` }));
    return made("div", { className: "frame" }, heading, table);
  }));
  if (picked && figures.length) pickable(tables.at(-1), figures.at(-1), picked);
}
