// Applies a text while it is typed, after a pause: Streamlit waits for Ctrl and Enter, or until the field loses the focus, so this
// presses the keys. The field stays as it is, with its cursor and what can be undone.

const PAUSE = 600; // milliseconds
const FIELDS = ["text", "text2", "second_text", "second_text2"].map((key) => `.st-key-${key} textarea`).join();
const APPLY = { key: "Enter", code: "Enter", keyCode: 13, ctrlKey: true, bubbles: true, cancelable: true };

let isWatching = false;

export function applyWhileTyping(app) {
  if (isWatching) return;
  isWatching = true;
  let timer = 0;
  const wait = ({ target, isComposing }) => {
    if (!target.matches(FIELDS)) return;
    clearTimeout(timer);
    if (isComposing) return; // an input method has not decided on the characters
    timer = setTimeout(() => target.dispatchEvent(new KeyboardEvent("keydown", APPLY)), PAUSE);
  };
  for (const type of ["input", "compositionend"]) app.addEventListener(type, wait);
}
