// Buttons that copy the address, and the watch over the connection.
//
// The address bar always holds the whole state, so copying it is all there is to sharing.

import { runAgain } from "./address.js";
import { firstPicture } from "./first.js";
import { keepFocus } from "./focus.js";
import { shared, sharedAddress } from "./frame.js";
import { made } from "./made.js";
import { menu } from "./menu.js";

const SAFE_LENGTH = 2000; // characters that every mail program and chat keeps whole
const NO_COPY = "The browser does not let this page copy. Copy the address bar.";
const READ = 4000; // milliseconds after which a sentence that warns of nothing has been read

// The address that opens this page; a parameter that stands there twice counts once.
function address({ lock = false, embed = false, present } = {}) {
  const query = new URLSearchParams(Object.fromEntries(shared(location)));
  for (const name of ["lock", "present"]) query.delete(name);
  if (lock) query.set("lock", "1");
  if (embed) query.set("embed", "true");
  if (present !== undefined) query.set("present", present);
  return sharedAddress() + (query.size ? `?${query}` : "");
}

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");

const TEXTS = {
  link: () => address(),
  lock: () => address({ lock: true }),
  present: ({ open }) => address({ present: open }),
  ask: ({ ask }) => new URL(`lessons?${ask}`, sharedAddress()).href,
  iframe: () => {
    const source = escaped(address({ embed: true }));
    return `<iframe src="${source}" width="100%" height="900" style="border:0" title="Attention Lab"></iframe>`;
  },
};

async function copy(text) {
  // navigator.clipboard is missing on plain http beyond localhost, where classrooms run their servers.
  if (navigator.clipboard && (await navigator.clipboard.writeText(text).then(() => true, () => false))) return true;
  const field = Object.assign(document.createElement("textarea"), { value: text });
  const focused = document.activeElement;
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  focused.focus({ preventScroll: true });
  return copied;
}

// What is said of a text that was copied, and whether that is a warning.
function said(kind, what, text, missing) {
  if (missing) return [`Copied, but ${missing}`, true];
  if (text.length <= SAFE_LENGTH) return [`${what} copied.`, false];
  const [long, safe] = [text.length, SAFE_LENGTH].map((number) => number.toLocaleString("en"));
  const limit = `It has ${long} characters, and many programs cut links after ${safe}`;
  return [`Copied. ${limit}: the ${kind === "ask" ? "lesson as a file" : "state file (Share)"} holds the same.`, true];
}

// An idle page of a server that went away would stay as it was, without a word. When the connection is
// back, perhaps to another server, the script runs again from the address and the widgets.
let watched = false;

function watchConnection(app) {
  if (watched) return;
  watched = true;
  let lost = false;
  new MutationObserver(() => {
    const connected = app.dataset.testConnectionState === "CONNECTED";
    if (connected && lost) runAgain();
    lost = !connected;
  }).observe(app, { attributes: true, attributeFilter: ["data-test-connection-state"] });
}

// What was said lies over the page, and goes when it has been read: by itself, or with Escape, or a click elsewhere.
function dismissable(status) {
  const gone = () => { status.textContent = ""; };
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") gone(); });
  document.addEventListener("pointerdown", ({ target }) => { if (!status.contains(target)) gone(); });
}

// Opens the Lab, where the page stands in a frame or has no knobs, or a question.
function opener(label, href) {
  const link = made("a", { textContent: label, target: "_blank", rel: "noopener", href: href() });
  for (const about of ["pointerenter", "focus"]) link.addEventListener(about, () => { link.href = href(); });
  return link;
}

const OPENS = { open: () => address(), try: TEXTS.ask };

// Copies a text, and says so; `root.sent` has what Python said last.
function copier(root, status, kind, label, what) {
  const button = made("button", { type: "button", textContent: label });
  let fading = 0;
  button.addEventListener("click", async () => {
    const text = TEXTS[kind](root.sent);
    const [words, warns] = (await copy(text)) ? said(kind, what, text, root.sent.missing) : [NO_COPY, true];
    status.textContent = words;
    status.classList.toggle("warns", warns);
    clearTimeout(fading);
    if (!warns) fading = setTimeout(() => { status.textContent = ""; }, READ);
  });
  return button;
}

export default function render({ data, parentElement }) {
  const root = parentElement.querySelector(".links");
  if (data.page) {
    const app = root.closest("[data-testid=stApp]");
    menu(app, data.page, () => new URL(address()).search, () => root.sent.mask);
    keepFocus(app);
    firstPicture(app);
    watchConnection(app);
  }
  root.sent = data;
  const wanted = JSON.stringify(data.buttons);
  if (root.dataset.drawn === wanted) return;
  const status = root.querySelector("[role=status]");
  if (!root.dataset.drawn) dismissable(status);
  root.dataset.drawn = wanted;
  root.querySelectorAll("button, a").forEach((old) => old.remove());
  for (const [kind, label, what] of data.buttons) {
    status.before(OPENS[kind] ? opener(label, () => OPENS[kind](root.sent)) : copier(root, status, kind, label, what));
  }
}
