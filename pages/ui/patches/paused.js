// A page stops asking for a state that has cost two servers: the address then says `paused=1`, and Python asks the person
// (pages/ui/server/paused.py). Without it the page of one visitor connects again by itself and takes one replica after the other.
//
// Replaces: window.WebSocket, with a subclass that reads which kind of message passes, and sends nothing after the second loss.
// Why: Streamlit connects and repeats its last request by itself, as soon as a server answers, and says nothing about it.
//   What the page shows in its attributes comes too late to stop the third request.
// Canary: tests/test_paused.py, test_page_stops_asking_a_server_that_died_twice.
// Public replacement: an option that limits how often a page repeats a request after its server was lost, or an event before it does.
//
// It runs before Streamlit's own scripts.

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
