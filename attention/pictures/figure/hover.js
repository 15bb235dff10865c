// Which cell stands under the pointer, and what is said of it where a cell of the map is a block of them.

const ONE = "1 × 1"; // a map of many layers, where only the page knows which head a cell is of

// The cell that is drawn where an event is. Plotly says of a click which cell was hovered, up to 50 ms before it:
// who clicks at once, or taps, is elsewhere.
export function pointAt(element, { clientX, clientY }) {
  const { xaxis, yaxis } = element._fullLayout;
  const [{ x0, dx, y0, dy, z }] = element._fullData;
  const box = element.getBoundingClientRect();
  const column = Math.round((xaxis.p2l(clientX - box.x - xaxis._offset) - x0) / dx);
  const row = Math.round((yaxis.p2l(clientY - box.y - yaxis._offset) - y0) / dy);
  return { x: x0 + column * dx, y: y0 + row * dy, z: z[row]?.[column] };
}

// The cell whose number is drawn at a point, and how large the block is that it stands for.
export function cellUnder(shown, picture, { x, y, z }) {
  const { blocks, at, panels } = picture.meta;
  const { view } = picture;
  if (view?.block > 1) {
    return { ...picture.exactOf(shown).cellAt(picture.live, view, x, y), block: `${view.block} × ${view.block}` };
  }
  if (!at) return { x, y, z };
  if (blocks) {
    const { down, across, top, left } = blocks;
    const row = Math.floor((y - top) / down);
    const column = Math.floor((x - left) / across);
    const place = at[row][column];
    return {
      x: left + column * across + (place % across),
      y: top + row * down + Math.floor(place / across),
      z,
      block: `${down} × ${across}`,
    };
  }
  const { block, head, layer, ...panel } = panelAt(panels, x, y);
  const place = at[y][x];
  return {
    x: (x - panel.x) * block + (place % block),
    y: (y - panel.y) * block + Math.floor(place / block),
    z,
    head: `L${layer} H${head}`,
    block: `${block} × ${block}`,
  };
}

// The panel of a map of several that has this cell; between them there is none.
export function panelAt(panels, x, y) {
  return panels.find((one) => x >= one.x && x < one.x + one.columns && y >= one.y && y < one.y + one.rows);
}

// Says where the block under the pointer has its number, as a hover says it.
export function tell(shown, picture, point) {
  const { x, y, z, block, head } = cellUnder(shown, picture, point);
  if (!block) return;
  const { meta, xaxis, yaxis } = picture.figure.layout;
  const name = (axis, own, i) => (own ?? axis).labelalias?.[i] ?? i;
  picture.tip.innerHTML = [
    [head, block === ONE ? "" : `largest of ${block}`].filter(Boolean).join(", "),
    `${meta.axes[0]} ${name(yaxis, meta.rows, y)}`,
    `${meta.axes[1]} ${name(xaxis, meta.columns, x)}`,
    `<b>${Number.isFinite(z) ? Number(z.toPrecision(9)) : "hidden by the mask"}</b>`,
  ].join("<br>");
  picture.tip.hidden = false;
}
