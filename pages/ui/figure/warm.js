// Fetches Plotly while the server still works out the first picture.

import { loadPlotly } from "./message.js";

export default function render({ data }) {
  loadPlotly(data).catch(() => {}); // who draws will try again, and say so
}
