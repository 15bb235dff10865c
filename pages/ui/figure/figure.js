// Hands figures to Plotly in the page, updates them in place, and tells Python which cell was clicked.
//
// Python sends bytes: the length of a JSON header (uint32), the header, then the arrays it points to.
// A figure is never rebuilt: Plotly.react into the same element keeps the zoom (layout.uirevision).

const ARRAYS = { f4: Float32Array, f8: Float64Array, u1: Uint8Array, i1: Int8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array };
const SMALLEST_TEXT = { width: 23, height: 13 }; // pixels of a cell below which its number would be unreadable

// Streamlit 1.67 pushes a history entry for every single knob the server sets: a click on a cell would
// need three steps back, some of them to states that never were. Here: one act of a person, one entry.
// And on the way back to another page it drops the knobs; that page is loaded afresh from its address.
if (!window.attentionHistory) {
  window.attentionHistory = { acted: false, path: location.pathname };
  const own = window.attentionHistory;
  for (const event of ["pointerdown", "keydown"]) window.addEventListener(event, () => { own.acted = true; }, true);
  const push = history.pushState;
  history.pushState = function (state, title, url) {
    // A menu link adds its knobs to those that stand in the address already: each once is enough.
    const { pathname, searchParams } = new URL(url ?? "", location.href);
    const once = new URLSearchParams(Object.fromEntries(searchParams)).toString();
    (own.acted ? push : history.replaceState).call(history, state, title, pathname + (once && `?${once}`));
    own.acted = false;
    own.path = location.pathname;
  };
  window.addEventListener("popstate", (event) => {
    own.acted = false;
    if (location.pathname === own.path) return;
    event.stopImmediatePropagation();
    location.reload();
  }, true);
}

let plotly; // one promise for the page: Plotly's script is loaded once

function loadPlotly(url) {
  plotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => { plotly = undefined; reject(new Error("Plotly's script did not load")); };
    document.head.append(script);
  });
  return plotly;
}

export function unpack(bytes) {
  const buffer = bytes.slice().buffer; // a copy starts at 0, so that typed arrays are aligned
  const headerSize = new DataView(buffer).getUint32(0, true);
  const start = 4 + headerSize;
  const revive = (_, value) => {
    if (!value || !value.array) return value;
    const { dtype, at, shape } = value.array;
    const size = shape.reduce((product, n) => product * n, 1);
    const flat = new ARRAYS[dtype](buffer, start + at, size);
    if (shape.length === 1) return flat;
    return Array.from({ length: shape[0] }, (__, row) => flat.subarray(row * shape[1], (row + 1) * shape[1]));
  };
  return JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, headerSize)), revive);
}

function themed(layout, root) {
  const style = getComputedStyle(root);
  const color = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
  const text = color("--st-text-color", "#31333f");
  const ground = color("--st-background-color", "#ffffff");
  const font = { family: color("--st-font", "sans-serif"), color: text };
  // On a tick, Plotly's hover repeats the tick's short text; a hair beside it, it says the position and the whole token.
  // Lines and bars have no such texts, and their ticks stay where they are.
  const shifted = ({ tickvals, range }) => tickvals.map((place) => place + 2e-4 * Math.abs(range[1] - range[0]));
  const aside = (axis) => (axis?.labelalias && axis.tickvals && axis.range ? { tickvals: shifted(axis) } : {});
  const touch = matchMedia("(pointer: coarse)").matches; // a finger scrolls the page; it does not zoom a map
  return {
    ...layout,
    font: { ...layout.font, ...font },
    hoverlabel: { bgcolor: ground, bordercolor: text, font: { ...font, size: 12 }, align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: color("--st-border-color", "#888"), activecolor: text },
    xaxis: { ...layout.xaxis, ...aside(layout.xaxis), fixedrange: touch },
    yaxis: { ...layout.yaxis, ...aside(layout.yaxis), fixedrange: touch },
    dragmode: touch ? false : "zoom",
  };
}

// Numbers in the cells only where a cell is large enough to read them, at this width and this zoom.
function fitTexts(element) {
  if (!element.texttemplate && !element.data[0].texttemplate) return;
  const { xaxis, yaxis } = element._fullLayout;
  const pixels = (axis) => axis._length / Math.abs(axis.range[1] - axis.range[0]);
  const fits = pixels(xaxis) >= SMALLEST_TEXT.width && pixels(yaxis) >= SMALLEST_TEXT.height;
  const wanted = fits ? element.texttemplate : "";
  if ((element.data[0].texttemplate ?? "") !== (wanted ?? "")) window.Plotly.restyle(element, { texttemplate: wanted }, [0]);
}

async function draw(Plotly, element, figure, root, send) {
  element.texttemplate = figure.data[0].texttemplate;
  element.style.height = `${figure.layout.height}px`; // before Plotly paints, so that nothing jumps
  element.setAttribute("role", "figure");
  element.setAttribute("aria-label", figure.layout.meta.alt);
  element.figure = figure;
  const first = !element.data;
  await Plotly.react(element, figure.data, themed(figure.layout, root), figure.config);
  fitTexts(element);
  if (!first) return;
  element.on("plotly_click", ({ points }) => element.figure.layout.meta.panels.length && send({ x: Math.round(points[0].x), y: Math.round(points[0].y), step: element.figure.layout.meta.step, at: Date.now() }));
  element.on("plotly_relayout", () => fitTexts(element));
  element.resizes = new ResizeObserver(() => {
    if (element.clientWidth && element.clientWidth !== element._fullLayout.width) Plotly.Plots.resize(element).then(() => fitTexts(element));
  });
  element.resizes.observe(element);
}

export default function render({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".figures");
  const { plotly: url, figures } = unpack(data);
  while (root.children.length < figures.length) root.append(document.createElement("div"));
  while (root.children.length > figures.length) {
    const last = root.lastElementChild;
    last.resizes?.disconnect();
    if (last.data) window.Plotly.purge(last);
    last.remove();
  }
  figures.forEach((figure, i) => { root.children[i].style.minHeight = `${figure.layout.height}px`; });
  root.figures = figures;
  loadPlotly(url).then(async (Plotly) => {
    for (const [i, figure] of figures.entries()) {
      if (root.figures !== figures) return; // a newer message has come in the meantime
      await draw(Plotly, root.children[i], figure, root, (cell) => setTriggerValue("cell", cell));
    }
    root.painted = figures;
  }).catch((error) => { root.textContent = `The picture could not be drawn: ${error.message}. The table below has the numbers; reload the page to try again.`; });
}
