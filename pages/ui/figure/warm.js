// Fetches Plotly and the figure's own scripts while the server still works out the first picture.

import { loadPlotly } from "./message.js";

export default function render() {
  loadPlotly().catch(() => {}); // who draws will try again, and say so
  import("./lab_figure.js").catch(() => {});
}
