// Loads the file of a state: a script that passes its bytes to a function, because a page opened from a file cannot use fetch.

const pending = new Map(); // by name: the function that receives the bytes of a loading script
const states = new Map(); // by name: the promise of the unpacked state

window.attentionDemo = (name, text) => pending.get(name)?.(text);

async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Unpacks a state. Like a message, it has the length of its header, the header, and the arrays, which all its messages share.
function unpackState(bytes) {
  const size = new DataView(bytes.buffer).getUint32(0, true);
  return { ...JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size))), arrays: bytes.subarray(4 + size) };
}

function fetchScript(name) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    pending.set(name, resolve);
    script.src = `states/${name}.js`;
    script.onerror = () => reject(new Error(`states/${name}.js did not load`));
    document.head.append(script);
  });
}

/** A state as Python packed it; loads it again if the previous attempt failed. */
export function load(name) {
  if (!states.has(name)) {
    const loading = fetchScript(name).then(inflate).then(unpackState);
    loading.catch(() => states.delete(name));
    states.set(name, loading);
  }
  return states.get(name);
}

/** Packs a message for the figure: its header, and the arrays of the state. */
export function asBytes(header, arrays) {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const size = text.length + ((8 - ((4 + text.length) % 8)) % 8);
  const bytes = new Uint8Array(4 + size + arrays.length).fill(32, 4, 4 + size);
  new DataView(bytes.buffer).setUint32(0, size, true);
  bytes.set(text, 4);
  bytes.set(arrays, 4 + size);
  return bytes;
}

/** The arrays of a state, to which matrices can be added that the page computes. */
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

/** A matrix of a state: its numbers as one flat array, its rows and its columns. */
export function matrixOf({ array: { dtype, at, shape: [rows, columns] } }, arrays) {
  const type = ARRAYS[dtype];
  const size = rows * columns * type.BYTES_PER_ELEMENT;
  return { flat: new type(arrays.slice(at, at + size).buffer), rows, columns };
}
