// Stands in the index page before Streamlit's own scripts. A page whose server goes away while it works for it connects
// and asks again by itself; if its state is what kills servers, it would take one after the other. After the second
// time in a row the address says so, and Python asks the person (pages/ui/server/paused.py). Streamlit 1.67 has no
// setting for it, so its socket is watched.

(() => {
  // Fields of Streamlit's BackMsg and ForwardMsg.
  const RERUN = 11;
  const NEW_SESSION = 4;
  const SCRIPT_FINISHED = 6;
  const CALM = 5000; // milliseconds after a run in which a server that it kills has died
  let lost = 0; // servers in a row that went away while they worked for this page
  let running = false;
  let calm = 0; // the timer after which a run counts as survived
  let leaving = false;

  // The field of a message after its hash (1) and metadata (2).
  const kind = (bytes) => {
    for (let at = 0, length, shift; at < bytes.length; at += length) {
      const field = bytes[at++] >> 3;
      if (field > 2) return field;
      for (length = shift = 0; ; shift += 7) {
        const byte = bytes[at++];
        length |= (byte & 127) << shift;
        if (byte < 128) break;
      }
    }
  };

  const runs = (now) => {
    running = now;
    clearTimeout(calm);
    if (!now) calm = setTimeout(() => { lost = 0; }, CALM);
  };

  addEventListener("pagehide", () => { leaving = true; });

  window.WebSocket = class extends WebSocket {
    constructor(...all) {
      super(...all);
      this.addEventListener("message", ({ data }) => {
        const what = kind(new Uint8Array(data));
        if (what === NEW_SESSION) runs(true);
        if (what === SCRIPT_FINISHED) runs(false);
      });
      this.addEventListener("close", () => {
        if (running && !leaving) lost += 1;
        running = false;
        clearTimeout(calm);
      });
      if (lost < 2) return;
      // Not before there is a server again, which Streamlit has made sure of; and loaded anew, since it keeps the
      // address to itself.
      leaving = true;
      const address = new URL(location.href);
      address.searchParams.set("paused", "1");
      location.replace(address);
    }

    send(data) {
      if (lost >= 2) return;
      if (kind(new Uint8Array(data)) === RERUN) runs(true);
      super.send(data);
    }
  };
})();
