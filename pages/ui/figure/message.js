// What Python sends: the length of a JSON header (uint32), the header, then the arrays it points to.

const ARRAYS = { f4: Float32Array, f8: Float64Array, u1: Uint8Array, i1: Int8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array };

let plotly; // one promise for the page: Plotly's script is loaded once

export function loadPlotly(url) {
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
  const message = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, headerSize)), revive);
  // The names along an axis: word by word, with their numbers before them, or as they are.
  const named = message.names.map(({ all, words, index }) => all ?? Object.fromEntries(Array.from(index, (word, i) => [i, `${i} ${words[word]}`.trim()])));
  for (const { layout } of message.figures) {
    for (const axis of [layout.xaxis, layout.yaxis, layout.meta.rows, layout.meta.columns]) {
      if (axis && "labelalias" in axis) axis.labelalias = named[axis.labelalias];
    }
  }
  return message;
}
