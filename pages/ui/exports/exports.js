// Links to files. The address bar holds the whole state at every moment, so a link is written when it is about to be used.
//
// A file arrives as a download and changes no page. What is no file is a sentence, which a hidden frame takes and this page shows.

import { shared } from "./frame.js";
import { made } from "./made.js";

const LONGEST = 6000; // characters of an address that every server takes; what is longer travels in a body
const READ = 5000; // milliseconds after which a sentence that warns of nothing has been read
const MOST_FRAMES = 8; // that wait for their files
const NO_ANSWER = "The server did not answer: try again in a moment.";

let frames = [];
let count = 0;

// The address of a file, and what it asks for.
function asked([, name, more, offered], token) {
  const query = new URLSearchParams(offered ? { offer: "1" } : Object.fromEntries(shared(location)));
  for (const view of ["lock", "present", "embed", "embed_options"]) query.delete(view);
  for (const [key, value] of Object.entries(more)) query.set(key, value);
  query.set("token", token);
  return [new URL(`./export/${encodeURIComponent(name)}`, document.baseURI).href, query];
}

// A frame that takes the answer; `say` shows what is no file. Where one is already, its file is on its way.
function frame(say) {
  count += 1;
  const taken = made("iframe", { name: `export-${count}`, title: "A file on its way", hidden: true });
  taken.addEventListener("load", () => {
    let text = NO_ANSWER;
    try {
      const { location: here, document: page } = taken.contentWindow;
      if (here.href === "about:blank") return;
      text = page.body.textContent.trim() || NO_ANSWER;
    } catch { /* the browser's own page, which says that nobody answers */ }
    taken.remove();
    say(text);
  });
  document.body.append(taken);
  frames = [...frames.filter(({ isConnected }) => isConnected), taken];
  if (frames.length > MOST_FRAMES) frames[0].remove();
  return taken.name;
}

// What is too long for an address.
function post(address, query, target) {
  const form = made("form", { method: "post", action: address, target, hidden: true });
  for (const [name, value] of query) form.append(made("input", { type: "hidden", name, value }));
  document.body.append(form);
  form.submit();
  form.remove();
}

function link(root, status, number) {
  const address = () => asked(root.sent.links[number], root.sent.token);
  const element = made("a", { textContent: root.sent.links[number][0], rel: "nofollow" });
  const write = () => {
    const [place, query] = address();
    element.href = `${place}?${query}`;
  };
  let fading = 0;
  const say = (text, warns) => {
    status.textContent = text;
    status.classList.toggle("warns", warns);
    clearTimeout(fading);
    if (!warns) fading = setTimeout(() => { status.textContent = ""; }, READ);
  };
  for (const about of ["pointerenter", "pointerdown", "focus"]) element.addEventListener(about, write);
  element.addEventListener("click", (event) => {
    write();
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a tab of its own
    element.target = frame((text) => say(text, true));
    say("The file is being made. Your browser saves it.", false);
    if (element.href.length <= LONGEST) return;
    event.preventDefault();
    post(...address(), element.target);
  });
  write();
  return element;
}

export default function render({ data, parentElement }) {
  const root = parentElement.querySelector(".exports");
  root.sent = data;
  const wanted = JSON.stringify(data.links.map(([label]) => label));
  if (root.dataset.drawn === wanted) return;
  root.dataset.drawn = wanted;
  const status = root.querySelector("[role=status]");
  root.querySelectorAll("a").forEach((old) => old.remove());
  data.links.forEach((_, number) => status.before(link(root, status, number)));
}
