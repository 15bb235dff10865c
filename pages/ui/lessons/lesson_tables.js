// The small maps of a lesson as HTML tables, which screen readers and keyboards can navigate.

import { inkOn } from "./cells.js";
import { create } from "./elements.js";
import { channelsOf, lookOf } from "./screen_look.js";

const MANY = 7; // columns; above this, numbers do not fit on a phone
const SHORT = 2; // characters of a label that stays horizontal on a phone

const look = () => lookOf(document.querySelector(".lesson"));

function heading(text, scope) {
  return create("th", { scope, textContent: text, title: text });
}

// A cell, or a question mark for a cell that is withheld until the answer.
function createCell(cell, label) {
  if (!cell) return create("td", { className: "withheld", textContent: "?", title: `${label}: comes after your answer` });
  const [text, exact, color] = cell;
  const td = create("td", { textContent: text, title: `${label}: ${exact}` });
  const background = look().here(color);
  td.style.setProperty("--cell-color", background);
  td.style.color = inkOn(channelsOf(background));
  return td;
}

// Outlines the true cells and the guessed cells.
function outlineAnswers(rows, figure) {
  for (const [row, column, source] of figure.marks ?? []) {
    const td = rows[row - figure.first]?.cells[column + 1];
    if (!td) continue;
    td.classList.add(source);
    td.append(create("span", { className: "visually-hidden", textContent: source === "truth" ? " (the answer)" : " (your answer)" }));
  }
}

function createTable(figure) {
  const [down, across] = figure.sides;
  const table = create("table", { className: figure.columns.length > MANY ? "many" : "" });
  table.classList.toggle("short", figure.columns.every((name) => name.length <= SHORT));
  table.setAttribute("aria-label", `${figure.title}, ${down} by ${across}`);
  const head = create("tr");
  head.append(create("td", { ariaHidden: "true" }), ...figure.columns.map((name) => heading(name, "col")));
  const rows = figure.cells.map((cells, i) => {
    const row = create("tr");
    const labelOf = (k) => `${figure.rows[i]} → ${figure.columns[k]}`;
    row.append(heading(figure.rows[i], "row"), ...cells.map((cell, k) => createCell(cell, labelOf(k))));
    return row;
  });
  const [top, body] = [create("thead"), create("tbody")];
  top.append(head);
  body.append(...rows);
  table.append(top, body);
  outlineAnswers(rows, figure);
  return table;
}

// The cells whose columns are patches, each over its part of the picture.
function createPicture(figure) {
  const { source, columns } = figure.picture;
  const table = create("table", { className: "picture" });
  table.setAttribute("aria-label", `${figure.title}, ${figure.rows[0]} over the picture, by row and column of its patches`);
  const head = create("tr");
  head.append(create("td", { ariaHidden: "true" }), ...columns[0].map((_, i) => heading(i, "col")));
  const percent = (i, count) => `${count > 1 ? (100 * i) / (count - 1) : 0}%`;
  const rows = columns.map((places, i) => {
    const row = create("tr");
    row.append(heading(i, "row"), ...places.map((column, k) => {
      const cell = figure.cells[0][column] ?? null;
      const td = createCell(cell, `row ${i}, column ${k}`);
      td.replaceChildren(create("span", { textContent: cell?.[0] ?? "" }));
      const color = cell ? `${look().here(cell[2])}99` : "#00000000"; // in front of the picture, which stays visible
      td.style.backgroundImage = `linear-gradient(${color}, ${color}), url("${source}")`;
      td.style.backgroundSize = `100% 100%, ${100 * places.length}% ${100 * columns.length}%`;
      td.style.backgroundPosition = `0 0, ${percent(k, places.length)} ${percent(i, columns.length)}`;
      return td;
    }));
    return row;
  });
  const [top, body] = [create("thead"), create("tbody")];
  top.append(head);
  body.append(...rows);
  table.append(top, body);
  columns.forEach((places, i) => {
    const marks = (figure.marks ?? []).map(([row, column, kind]) => [row, places.indexOf(column), kind]).filter(([, k]) => k >= 0);
    outlineAnswers([rows[i]], { ...figure, marks });
  });
  return table;
}

// The columns of a figure that are no patches, as a figure of their own; null if there are none.
function withoutPicture(figure) {
  const patches = new Set(figure.picture.columns.flat());
  const rest = figure.columns.map((_, k) => k).filter((k) => !patches.has(k));
  if (!rest.length) return null;
  const marks = (figure.marks ?? []).map(([row, column, kind]) => [row, rest.indexOf(column), kind]).filter(([, k]) => k >= 0);
  return { ...figure, marks, columns: rest.map((k) => figure.columns[k]), cells: figure.cells.map((row) => rest.map((k) => row[k])) };
}

function createTables(figure) {
  if (!figure.picture) return [createTable(figure)];
  const rest = withoutPicture(figure);
  return [createPicture(figure), ...(rest ? [createTable(rest)] : [])];
}

// Lets the user choose one cell of a table, by a click, or with the arrow keys and Enter.
function makeSelectable(table, figure, onSelect) {
  const cells = [...table.tBodies[0].rows].map((row) => [...row.cells].slice(1));
  const places = figure.picture?.columns; // then rows and columns are those of the picture
  table.setAttribute("role", "grid");
  let current = [0, 0];
  const moveTo = (row, column) => {
    cells[current[0]][current[1]].tabIndex = -1;
    current = [Math.max(0, Math.min(row, cells.length - 1)), Math.max(0, Math.min(column, cells[0].length - 1))];
    cells[current[0]][current[1]].tabIndex = 0;
  };
  const select = () => {
    for (const td of cells.flat()) td.removeAttribute("aria-selected");
    cells[current[0]][current[1]].setAttribute("aria-selected", "true");
    const [row, column] = current;
    if (places) onSelect([figure.first, places[row][column]], `row ${row}, column ${column}`);
    else onSelect([row + figure.first, column], `${figure.rows[row]} → ${figure.columns[column]}`);
  };
  cells.forEach((row, i) => row.forEach((td, k) => {
    td.setAttribute("role", "gridcell");
    td.tabIndex = -1;
    td.addEventListener("click", () => { moveTo(i, k); td.focus({ preventScroll: true }); select(); });
  }));
  moveTo(0, 0);
  table.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step) {
      moveTo(current[0] + step[0], current[1] + step[1]);
      cells[current[0]][current[1]].focus();
    } else if (event.key === "Enter" || event.key === " ") select();
    else return;
    event.preventDefault();
  });
}

// Draws all tables of a message; `onSelect` is called with the chosen cell of the last one, if the question asks for a cell.
export function drawTables(container, { figures }, onSelect) {
  const tables = figures.map(createTables);
  container.replaceChildren(...tables.map((parts, i) => {
    const { title, rows, picture, sides: [down, across] } = figures[i];
    const heading = create("p", { textContent: title });
    const sides = picture ? `${down} ${figures[i].first} “${rows[0]}” over the picture` : `rows ${down}, columns ${across}`;
    heading.append(create("small", { textContent: sides }));
    return create("div", { className: "frame" }, heading, ...parts);
  }));
  if (onSelect && figures.length) makeSelectable(tables.at(-1)[0], figures.at(-1), onSelect);
}
