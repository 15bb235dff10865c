// Buttons that copy the address, the watch over the connection, and whoever asks for a run of the whole page.
//
// The address bar always holds the whole state, so copying it is all there is to sharing.

import { firstPicture } from "./first.js";
import { keepFocus } from "./focus.js";
import { menu } from "./menu.js";

const SAFE_LENGTH = 2000; // characters that every mail program and chat keeps whole

// The page's own address; a parameter that stands there twice counts once.
function address({ lock = false, embed = false, present } = {}) {
  const { origin, pathname, searchParams } = new URL(location.href);
  const query = new URLSearchParams(Object.fromEntries(searchParams));
  for (const name of ["embed", "embed_options", "lock", "present"]) query.delete(name);
  if (lock) query.set("lock", "1");
  if (embed) query.set("embed", "true");
  if (present !== undefined) query.set("present", present);
  return `${origin}${pathname}${query.size ? `?${query}` : ""}`;
}

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");

const TEXTS = {
  link: () => address(),
  lock: () => address({ lock: true }),
  present: ({ open }) => address({ present: open }),
  iframe: () => `<iframe src="${escaped(address({ embed: true }))}" width="100%" height="900" style="border:0" title="Attention Lab"></iframe>`,
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

function said(what, text, missing) {
  if (missing) return [`Copied, but ${missing} not in the link: send the state file instead (Share).`, true];
  if (text.length > SAFE_LENGTH) return [`Copied. It has ${text.length.toLocaleString("en")} characters, and many programs cut links after ${SAFE_LENGTH.toLocaleString("en")}: the state file (Share) holds the same.`, true];
  return [`${what} copied.`, false];
}

let runAgain = null; // asks for a run of the whole page, as the latest of our components outside all fragments can

// An idle page of a server that went away would stay as it was, without a word. When the connection is
// back, perhaps to another server, the script runs again from the address and the widgets.
function watchConnection(app) {
  let lost = false;
  new MutationObserver(() => {
    const connected = app.dataset.testConnectionState === "CONNECTED";
    if (connected && lost) runAgain();
    lost = !connected;
  }).observe(app, { attributes: true, attributeFilter: ["data-test-connection-state"] });
}

// What was said lies over the page, and goes when it has been read: by itself, or with Escape, or a click elsewhere.
function dismissable(status) {
  if (status.dismissable) return;
  status.dismissable = true;
  const gone = () => { status.textContent = ""; };
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") gone(); });
  document.addEventListener("pointerdown", ({ target }) => { if (!status.contains(target)) gone(); });
}

export default function render({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".links");
  if (data.page) {
    const app = root.closest("[data-testid=stApp]");
    menu(app, data.page, () => new URL(address()).search);
    keepFocus(app);
    firstPicture(app);
    if (!runAgain) {
      watchConnection(app);
      window.addEventListener("runagain", () => runAgain()); // a figure is painted that a fragment has made
    }
    runAgain = () => setTriggerValue("again", Date.now());
  }
  const status = root.querySelector("[role=status]");
  dismissable(status);
  if (root.dataset.drawn !== JSON.stringify(data.buttons)) {
    root.dataset.drawn = JSON.stringify(data.buttons);
    root.querySelectorAll("button, a").forEach((old) => old.remove());
    for (const [kind, label, what] of data.buttons) {
      const button = document.createElement(kind === "open" ? "a" : "button");
      button.textContent = label;
      if (kind === "open") {
        Object.assign(button, { target: "_blank", rel: "noopener" });
        button.addEventListener("pointerenter", () => { button.href = address(); });
        button.href = address();
      } else {
        button.type = "button";
        button.addEventListener("click", async () => {
          const text = TEXTS[kind](root);
          const [words, warns] = (await copy(text)) ? said(what, text, root.missing) : ["The browser does not let this page copy. Copy the address bar.", true];
          status.textContent = words;
          status.classList.toggle("warns", warns);
          clearTimeout(root.fading);
          if (!warns) root.fading = setTimeout(() => { status.textContent = ""; }, 4000);
        });
      }
      status.before(button);
    }
  }
  root.missing = data.missing;
  root.open = data.open;
}
