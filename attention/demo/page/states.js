// Loads the file of a state: a script that passes its bytes to a function, because a page opened from a file cannot use fetch.

import { unpackTrace } from "./packed.js";

const pending = new Map(); // by name: the function that receives the bytes of a loading script
const states = new Map(); // by name: the promise of the unpacked state

window.attentionDemo = (name, text) => pending.get(name)?.(text);

async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
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
    const loading = fetchScript(name).then(inflate).then(unpackTrace);
    loading.catch(() => states.delete(name));
    states.set(name, loading);
  }
  return states.get(name);
}
