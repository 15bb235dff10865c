// A state's file: a script that hands over its bytes, since a page that was opened as a file may fetch nothing.

const waiting = new Map(); // by name: what takes the bytes of a script that is on its way
const known = new Map(); // by name: the promise of what was unpacked

window.attentionDemo = (name, text) => waiting.get(name)?.(text);

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// A state is packed like a message: the length of its header, the header, and the arrays, which all its messages share.
function parted(bytes) {
  const size = new DataView(bytes.buffer).getUint32(0, true);
  return { ...JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size))), arrays: bytes.subarray(4 + size) };
}

function fetched(name) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    waiting.set(name, resolve);
    script.src = `states/${name}.js`;
    script.onerror = () => reject(new Error(`states/${name}.js did not load`));
    document.head.append(script);
  });
}

/** What Python has packed of a state. One that did not load is asked for again. */
export function load(name) {
  if (!known.has(name)) {
    const loading = fetched(name).then(inflated).then(parted);
    loading.catch(() => known.delete(name));
    known.set(name, loading);
  }
  return known.get(name);
}

/** A message of a state as bytes, as the figure takes one: its header, and the arrays of the state. */
export function asBytes(header, arrays) {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const size = text.length + ((8 - ((4 + text.length) % 8)) % 8);
  const bytes = new Uint8Array(4 + size + arrays.length).fill(32, 4, 4 + size);
  new DataView(bytes.buffer).setUint32(0, size, true);
  bytes.set(text, 4);
  bytes.set(arrays, 4 + size);
  return bytes;
}

const ARRAYS = { f4: Float32Array, f8: Float64Array };

/** A matrix of a state: its numbers in one row, and how many columns it has. */
export function matrixOf({ array: { dtype, at, shape: [rows, columns] } }, arrays) {
  const kind = ARRAYS[dtype];
  const size = rows * columns * kind.BYTES_PER_ELEMENT;
  return { flat: new kind(arrays.slice(at, at + size).buffer), rows, columns };
}
