// Buttons that copy the address, and the watcher of the connection.
//
// The address bar always contains the whole state, so sharing only means copying it.

import { runAgain } from "./address.js";
import { markFirstPicture } from "./first_picture.js";
import { keepFocus } from "./focus.js";
import { applyWhileTyping } from "./typing.js";
import { sharedAddress, sharedQuery } from "./frame.js";
import { create } from "./elements.js";
import { watchMenu } from "./menu.js";

const SAFE_LENGTH = 2000; // characters that no mail program or chat truncates
const NO_COPY = "The browser does not let this page copy. Copy the address bar.";
const HIDE_AFTER = 4000; // milliseconds that a message without a warning stays

// The address that opens this page; of a repeated parameter, the last value counts.
function address({ lock = false, embed = false, present } = {}) {
  const query = new URLSearchParams(Object.fromEntries(sharedQuery(location)));
  for (const name of ["lock", "present"]) query.delete(name);
  if (lock) query.set("lock", "1");
  if (embed) query.set("embed", "true");
  if (present !== undefined) query.set("present", present);
  return sharedAddress() + (query.size ? `?${query}` : "");
}

const escapeHtml = (text) => text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");

// The link of each kind of button; `sent` is the last message from Python.
const LINKS = {
  link: () => address(),
  lock: () => address({ lock: true }),
  present: ({ open }) => address({ present: open }),
  ask: ({ ask }) => new URL(ask, sharedAddress()).href,
  iframe: () => address({ embed: true }),
};
const frameOf = (link) => `<iframe src="${escapeHtml(link)}" width="100%" height="900" style="border:0" title="Attention Lab"></iframe>`;

// Opens a link over this page, as whoever gets it sees it.
function openPreview(root, href) {
  const close = create("button", { type: "button", textContent: "Close" });
  const bar = create("p", {}, create("span", { textContent: "As others see it." }),
    create("a", { textContent: "Open in a tab ↗", target: "_blank", rel: "noopener", href }), close);
  const dialog = create("dialog", { ariaLabel: "Preview" }, bar, create("iframe", { src: href, title: "The page behind the link" }));
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  root.append(dialog);
  dialog.showModal();
}

async function copy(text) {
  // navigator.clipboard is missing on plain http except on localhost, and classrooms use plain http.
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

// The message after copying a text, and whether it is a warning.
function copyMessage(kind, name, text, missing) {
  if (missing) return [`Copied, but ${missing}`, true];
  if (text.length <= SAFE_LENGTH) return [`${name} copied.`, false];
  const [length, safeLength] = [text.length, SAFE_LENGTH].map((number) => number.toLocaleString("en"));
  const limit = `It has ${length} characters, and many programs cut links after ${safeLength}`;
  return [`Copied. ${limit}: the ${kind === "ask" ? "lesson as a file" : "state file (Share)"} holds the same.`, true];
}

// An idle page would not notice that its server was lost. When the connection is
// back, possibly to another server, the script runs again with the address and the widgets.
let isWatching = false;

function watchConnection(app) {
  if (isWatching) return;
  isWatching = true;
  let isLost = false;
  new MutationObserver(() => {
    const isConnected = app.dataset.testConnectionState === "CONNECTED";
    if (isConnected && isLost) runAgain();
    isLost = !isConnected;
  }).observe(app, { attributes: true, attributeFilter: ["data-test-connection-state"] });
}

// The message lies over the page; Escape or a click elsewhere hides it.
function makeDismissible(status) {
  const hide = () => { status.textContent = ""; };
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") hide(); });
  document.addEventListener("pointerdown", ({ target }) => { if (!status.contains(target)) hide(); });
}

// A link that opens the Lab from a frame or from a page without knobs.
function createOpenLink(label, href) {
  const link = create("a", { textContent: label, target: "_blank", rel: "noopener", href: href() });
  for (const type of ["pointerenter", "focus"]) link.addEventListener(type, () => { link.href = href(); });
  return link;
}

// A button that copies a text and shows a message; `root.sent` is the last message from Python.
function createCopyButton(root, status, kind, label, name) {
  const button = create("button", { type: "button", textContent: label });
  let hideTimer = 0;
  button.addEventListener("click", async () => {
    const link = LINKS[kind](root.sent);
    const text = kind === "iframe" ? frameOf(link) : link;
    const [message, warns] = (await copy(text)) ? copyMessage(kind, name, text, root.sent.missing) : [NO_COPY, true];
    status.textContent = message;
    status.classList.toggle("warns", warns);
    clearTimeout(hideTimer);
    if (!warns) hideTimer = setTimeout(() => { status.textContent = ""; }, HIDE_AFTER);
  });
  return button;
}

export default function render({ data, parentElement }) {
  const root = parentElement.querySelector(".links");
  if (data.page) {
    const app = root.closest("[data-testid=stApp]");
    watchMenu(app, data.page, () => new URL(address()).search);
    keepFocus(app);
    applyWhileTyping(app);
    markFirstPicture(app);
    watchConnection(app);
  }
  root.sent = data;
  const buttons = JSON.stringify(data.buttons);
  if (root.dataset.drawn === buttons) return;
  const status = root.querySelector("[role=status]");
  if (!root.dataset.drawn) makeDismissible(status);
  root.dataset.drawn = buttons;
  root.querySelectorAll(":scope > :is(button, a)").forEach((old) => old.remove()); // a preview stays open
  for (const [kind, label, name] of data.buttons) {
    status.before(kind === "open" ? createOpenLink(label, () => address()) : createCopyButton(root, status, kind, label, name));
    if (["open", "link"].includes(kind)) continue; // that is the page which is there already
    const preview = create("button", { type: "button", textContent: "Preview", ariaLabel: `Preview: ${label.replace("Copy ", "")}` });
    preview.addEventListener("click", () => openPreview(root, LINKS[kind](root.sent)));
    status.before(preview);
  }
}
