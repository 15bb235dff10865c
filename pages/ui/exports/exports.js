// Links to files. The address bar always contains the whole state, so the target of a link is written just before its use.
//
// A file arrives as a download and does not change the page. Any other answer is a message, received in a hidden frame and shown on this page.

import { sharedQuery } from "./frame.js";
import { create } from "./elements.js";

const MAX_URL = 6000; // characters that every server accepts; a longer request is posted
const HIDE_AFTER = 5000; // milliseconds that a message without a warning stays
const MAX_FRAMES = 8; // that wait for their files
const NO_ANSWER = "The server did not answer: try again in a moment.";

let frames = [];
let count = 0;

// The URL and the query of a file.
function requestOf([, name, parameters, usesOffer], token) {
  const query = new URLSearchParams(usesOffer ? { offer: "1" } : Object.fromEntries(sharedQuery(location)));
  for (const key of ["lock", "present", "embed", "embed_options"]) query.delete(key);
  for (const [key, value] of Object.entries(parameters)) query.set(key, value);
  query.set("token", token);
  return [new URL(`./export/${encodeURIComponent(name)}`, document.baseURI).href, query];
}

// Creates a frame that receives the answer; `show` shows a message. A frame that already exists still waits for its file.
function createFrame(show) {
  count += 1;
  const iframe = create("iframe", { name: `export-${count}`, title: "A file on its way", hidden: true });
  iframe.addEventListener("load", () => {
    let text = NO_ANSWER;
    try {
      const { location: address, document: page } = iframe.contentWindow;
      if (address.href === "about:blank") return;
      text = page.body.textContent.trim() || NO_ANSWER;
    } catch { /* the browser's own error page */ }
    iframe.remove();
    show(text);
  });
  document.body.append(iframe);
  frames = [...frames.filter(({ isConnected }) => isConnected), iframe];
  if (frames.length > MAX_FRAMES) frames[0].remove();
  return iframe.name;
}

// Posts a request that is too long for a URL.
function post(address, query, target) {
  const form = create("form", { method: "post", action: address, target, hidden: true });
  for (const [name, value] of query) form.append(create("input", { type: "hidden", name, value }));
  document.body.append(form);
  form.submit();
  form.remove();
}

function createLink(root, status, number) {
  const request = () => requestOf(root.sent.links[number], root.sent.token);
  const element = create("a", { textContent: root.sent.links[number][0], rel: "nofollow" });
  const write = () => {
    const [url, query] = request();
    element.href = `${url}?${query}`;
  };
  let hideTimer = 0;
  const showStatus = (text, warns) => {
    status.textContent = text;
    status.classList.toggle("warns", warns);
    clearTimeout(hideTimer);
    if (!warns) hideTimer = setTimeout(() => { status.textContent = ""; }, HIDE_AFTER);
  };
  for (const type of ["pointerenter", "pointerdown", "focus"]) element.addEventListener(type, write);
  element.addEventListener("click", (event) => {
    write();
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // opens in its own tab
    element.target = createFrame((text) => showStatus(text, true));
    showStatus("The file is being made. Your browser saves it.", false);
    if (element.href.length <= MAX_URL) return;
    event.preventDefault();
    post(...request(), element.target);
  });
  write();
  return element;
}

export default function render({ data, parentElement }) {
  const root = parentElement.querySelector(".exports");
  root.sent = data;
  const labels = JSON.stringify(data.links.map(([label]) => label));
  if (root.dataset.drawn === labels) return;
  root.dataset.drawn = labels;
  const status = root.querySelector("[role=status]");
  root.querySelectorAll("a").forEach((old) => old.remove());
  data.links.forEach((_, number) => status.before(createLink(root, status, number)));
}
