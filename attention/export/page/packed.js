// A packed trace: the length of a header, the header, and the arrays that all its figures share (attention/export/packing.py).

/** Its header, and its arrays as `arrays`, whose bytes come in four parts: the first ones of every four, then the second ones, …. */
export function unpackTrace(bytes) {
  const size = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const parts = bytes.subarray(4 + size);
  const count = parts.length / 4;
  const arrays = new Uint8Array(parts.length);
  for (let i = 0; i < arrays.length; i += 1) arrays[i] = parts[(i & 3) * count + (i >> 2)];
  return { ...JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size))), arrays };
}

/** Packs a message for the figure: its header, and the arrays. */
export function asBytes(header, arrays) {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const size = text.length + ((8 - ((4 + text.length) % 8)) % 8);
  const bytes = new Uint8Array(4 + size + arrays.length).fill(32, 4, 4 + size);
  new DataView(bytes.buffer).setUint32(0, size, true);
  bytes.set(text, 4);
  bytes.set(arrays, 4 + size);
  return bytes;
}

/** The arrays of a trace, to which matrices can be added that the page computes. */
export class MoreArrays {
  constructor(arrays) {
    this.parts = [arrays];
    this.size = arrays.length;
  }

  // Adds the rows of a matrix; returns what stands for it in a message.
  add(rows) {
    const bytes = new Uint8Array(Float64Array.from(rows.flat()).buffer);
    const gap = new Uint8Array((8 - (this.size % 8)) % 8); // numbers must start on a multiple of their size
    this.parts.push(gap, bytes);
    this.size += gap.length + bytes.length;
    return { array: { dtype: "f8", at: this.size - bytes.length, shape: [rows.length, rows[0].length] } };
  }

  get all() {
    const all = new Uint8Array(this.size);
    let at = 0;
    for (const part of this.parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }
}

const ARRAYS = { f4: Float32Array, f8: Float64Array };

/** One of its matrices: its numbers as one flat array, its rows and its columns. */
export function matrixOf({ array: { dtype, at, shape: [rows, columns] } }, arrays) {
  const type = ARRAYS[dtype];
  const size = rows * columns * type.BYTES_PER_ELEMENT;
  return { flat: new type(arrays.slice(at, at + size).buffer), rows, columns };
}
