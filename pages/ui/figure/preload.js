// Fetches Plotly and the figure's scripts while the server computes the first picture.

import { loadPlotly } from "./message.js";

export default function render() {
  loadPlotly().catch(() => {}); // the figure tries again, and reports an error
  import("./lab_figure.js").catch(() => {});
}
