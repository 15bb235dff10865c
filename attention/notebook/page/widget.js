// The live view of a trace: the output's frame, whose clicks and knobs go to Python (anywidget's front-end module).

const NUMBERS = ["layer", "head", "q", "k", "window", "prefix"];
const NAMES = [...NUMBERS, "step", "view", "mask", "temperature"];
const PATIENCE = 300; // milliseconds until Python is asked for the scripts; another output of the page may have them

const toTrait = (name, value) => (NUMBERS.includes(name) || name === "temperature" ? Number(value) : value);

function render({ model, el }) {
  const frame = document.createElement("iframe");
  Object.assign(frame, { title: "Attention Lab", srcdoc: model.get("document") });
  Object.assign(frame.style, { border: "0", width: "100%", height: `${model.get("height")}px`, display: "block" });
  let isOpen = false;
  const post = (message) => frame.contentWindow?.postMessage(message, "*");
  const knobs = () => Object.fromEntries(NAMES.map((name) => [name, String(model.get(name))]));

  function receive({ data, source }) {
    if (!frame.contentWindow || source !== frame.contentWindow) return;
    if (data?.attentionLab === "need") setTimeout(() => { if (!isOpen) model.send({ kind: "scripts" }); }, PATIENCE);
    if (data?.attentionLab === "height") frame.style.height = `${data.height}px`;
    if (data?.attentionLab === "open") {
      isOpen = true;
      post({ attentionLab: "set", knobs: knobs() });
      post({ attentionLab: "write", arithmetic: model.get("arithmetic") });
    }
    if (data?.attentionLab === "changed") {
      for (const [name, value] of Object.entries(data.knobs)) if (NAMES.includes(name)) model.set(name, toTrait(name, value));
      model.save_changes();
    }
  }
  function sendScripts({ kind, hash }, buffers) {
    if (kind !== "scripts" || isOpen) return;
    const [{ buffer, byteOffset, byteLength }] = buffers.map((view) => (view.buffer ? view : new DataView(view)));
    post({ attentionLab: "scripts", hash, packed: new Uint8Array(buffer.slice(byteOffset, byteOffset + byteLength)) });
  }
  const setKnobs = () => post({ attentionLab: "set", knobs: knobs() });
  const write = () => post({ attentionLab: "write", arithmetic: model.get("arithmetic") });

  window.addEventListener("message", receive);
  model.on("msg:custom", sendScripts);
  for (const name of NAMES) model.on(`change:${name}`, setKnobs);
  model.on("change:arithmetic", write);
  el.append(frame);
  return () => {
    window.removeEventListener("message", receive);
    model.off("msg:custom", sendScripts);
    for (const name of NAMES) model.off(`change:${name}`, setKnobs);
    model.off("change:arithmetic", write);
  };
}

export default { render };
