// Starts an output: finds the scripts, and opens them. It is the only script that every output carries.
//
// One output of a notebook carries the compressed scripts (Plotly and the Lab's own), the others ask for them: every frame of
// the page gets a question, and a frame that has them answers. Frames need not share an origin (VS Code, Colab), so this uses
// messages. A frame runs only scripts whose SHA-256 it knows from Python.
(() => {
  const settings = JSON.parse(document.getElementById("settings").textContent);
  const { hash, kind } = settings;
  const ALPHABET = settings.alphabet;
  const PATIENCE = 4000; // milliseconds until the output says that the scripts are missing
  let packed = null; // the compressed scripts
  let output = null;
  let size = null;

  const textOf = (id) => document.getElementById(id)?.textContent.trim() ?? "";

  // Base 85: five characters for four bytes; the text begins with the number of bytes and a colon.
  function decode(text) {
    const colon = text.indexOf(":");
    const values = new Uint8Array(128);
    for (let i = 0; i < ALPHABET.length; i += 1) values[ALPHABET.charCodeAt(i)] = i;
    const bytes = new Uint8Array(((text.length - colon - 1) / 5) * 4);
    const view = new DataView(bytes.buffer);
    for (let at = colon + 1, to = 0; at < text.length; to += 4) {
      let number = 0;
      for (let i = 0; i < 5; i += 1, at += 1) number = number * 85 + values[text.charCodeAt(at)];
      view.setUint32(to, number);
    }
    return bytes.subarray(0, Number(text.slice(0, colon)));
  }

  async function inflate(bytes) {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // SHA-256 in hexadecimal: crypto.subtle is missing on pages without HTTPS.
  function sha256(bytes) {
    const primes = [];
    for (let n = 2; primes.length < 64; n += 1) if (primes.every((p) => n % p)) primes.push(n);
    const fraction = (x) => ((x - Math.floor(x)) * 2 ** 32) | 0;
    const k = primes.map((p) => fraction(Math.cbrt(p)));
    const h = primes.slice(0, 8).map((p) => fraction(Math.sqrt(p)));
    const length = bytes.length;
    const padded = new Uint8Array(((length + 8) >> 6) * 64 + 64);
    padded.set(bytes);
    padded[length] = 128;
    const view = new DataView(padded.buffer);
    view.setUint32(padded.length - 8, Math.floor(length / 2 ** 29));
    view.setUint32(padded.length - 4, length << 3);
    const w = new Int32Array(64);
    const rotate = (x, n) => (x >>> n) | (x << (32 - n));
    for (let start = 0; start < padded.length; start += 64) {
      for (let i = 0; i < 16; i += 1) w[i] = view.getInt32(start + 4 * i);
      for (let i = 16; i < 64; i += 1) {
        const [a, b] = [w[i - 15], w[i - 2]];
        w[i] = (w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ (a >>> 3)) + w[i - 7] + (rotate(b, 17) ^ rotate(b, 19) ^ (b >>> 10))) | 0;
      }
      let [a, b, c, d, e, f, g, i8] = h;
      for (let i = 0; i < 64; i += 1) {
        const t1 = (i8 + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + k[i] + w[i]) | 0;
        const t2 = ((rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        [i8, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
      }
      [a, b, c, d, e, f, g, i8].forEach((x, i) => { h[i] = (h[i] + x) | 0; });
    }
    return h.map((x) => (x >>> 0).toString(16).padStart(8, "0")).join("");
  }

  // -- the scripts -----------------------------------------------------------------------------

  // Sends a message to every other frame of the page.
  function broadcast(message) {
    const visit = (frame) => {
      if (frame !== window) frame.postMessage(message, "*");
      for (let i = 0; i < frame.length; i += 1) visit(frame[i]);
    };
    visit(window.top);
  }

  window.addEventListener("message", ({ data, source }) => {
    if (data?.attentionLab === "need" && data.hash === hash && packed) source.postMessage({ attentionLab: "scripts", hash, packed }, "*");
    if (data?.attentionLab === "have" && data.hash === hash && !packed) source.postMessage({ attentionLab: "need", hash }, "*");
    if (data?.attentionLab === "scripts" && data.hash === hash && !packed && data.packed instanceof Uint8Array) start(data.packed);
    if (data?.attentionLab === "set" && source === window.parent) output?.set(data.knobs);
    if (data?.attentionLab === "write" && source === window.parent) output?.write?.(data.arithmetic);
  });

  async function start(bytes) {
    if (sha256(bytes) !== hash) return;
    packed = bytes;
    broadcast({ attentionLab: "have", hash });
    const script = document.createElement("script");
    script.textContent = new TextDecoder().decode(await inflate(bytes));
    document.head.append(script); // no eval and no blob: address, which policies forbid
    followTheme();
    document.getElementById("waiting").remove();
    const data = await inflate(decode(textOf("data")));
    const tell = (knobs) => window.parent.postMessage({ attentionLab: "changed", knobs }, "*");
    output = window.attentionLab.open(document.getElementById("lab"), kind, data, tell);
    window.attentionOutput = output;
    window.parent.postMessage({ attentionLab: "open" }, "*");
    followSize();
  }

  // -- the page around it -------------------------------------------------------------------------

  // The element of this frame in the page around it; null where its origin is another one.
  function frameElement() {
    try { return window.frameElement; } catch { return null; }
  }

  // As high as what it draws, where the page around it allows that.
  function followSize() {
    const frame = frameElement();
    const body = document.body;
    size = new ResizeObserver(() => {
      const height = Math.ceil(document.getElementById("lab").getBoundingClientRect().bottom + 4);
      if (frame) frame.style.height = `${height}px`;
      else window.parent.postMessage({ attentionLab: "height", height }, "*");
    });
    size.observe(document.getElementById("lab"));
    body.dataset.ready = "true";
  }

  // A colour as [red, green, blue, alpha] from 0 to 255, whatever its notation: a canvas converts it.
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  function rgba(color) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  }

  const isDark = ([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue < 128;

  // The background behind this frame: that of the nearest element with one; null where there is none, or another origin.
  function backgroundBehind() {
    for (let element = frameElement()?.parentElement; element; element = element.parentElement) {
      const color = rgba(element.ownerDocument.defaultView.getComputedStyle(element).backgroundColor);
      if (color[3] > 200) return color;
    }
    return null;
  }

  let theme = null;
  function applyTheme() {
    const background = backgroundBehind();
    const dark = background ? isDark(background) : matchMedia("(prefers-color-scheme: dark)").matches;
    const color = background ? `rgb(${[...background].slice(0, 3).join(", ")})` : dark ? "#111418" : "#ffffff";
    if (theme === color) return;
    theme = color;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    document.documentElement.style.setProperty("--st-background-color", color);
    output?.draw();
  }

  function followTheme() {
    applyTheme();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
    const around = frameElement()?.ownerDocument;
    if (!around) return;
    const observer = new MutationObserver(() => setTimeout(applyTheme, 100)); // after a transition of colours has begun
    for (const element of [around.documentElement, around.body]) observer.observe(element, { attributes: true });
  }

  applyTheme();
  const own = textOf("scripts");
  if (own) {
    // Reading them takes a while: the first picture is painted before. A frame out of sight has no animation frames.
    const begin = setTimeout(() => start(decode(own)), 200);
    requestAnimationFrame(() => setTimeout(() => { clearTimeout(begin); if (!packed) start(decode(own)); }));
  } else broadcast({ attentionLab: "need", hash });
  setTimeout(() => {
    const waiting = document.querySelector("#waiting p");
    if (waiting) waiting.textContent = settings.missing;
  }, PATIENCE);
})();
