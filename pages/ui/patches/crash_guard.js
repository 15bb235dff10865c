// A page stops requesting a state that has crashed two servers: it adds `paused=1` to its address, and Python asks the user
// (pages/ui/page/crash_guard.py). Otherwise one visitor's page would reconnect automatically and crash one replica after the other.
//
// Replaces: window.WebSocket, with a subclass that reads the type of each message, and sends nothing after the second lost server.
// Why: Streamlit reconnects and repeats its last request automatically, as soon as a server answers, without an event.
//   The attributes of the page change too late to stop the third request.
// Canary: tests/test_crash_guard.py, test_page_stops_asking_a_server_that_died_twice.
// Public replacement: an option that limits how often a page repeats a request after its server was lost, or an event before it does.
//
// It runs before Streamlit's scripts.

(() => {
  // Fields of Streamlit's BackMsg and ForwardMsg.
  const RERUN = 11;
  const NEW_SESSION = 4;
  const SCRIPT_FINISHED = 6;
  const SURVIVAL_TIME = 5000; // milliseconds after a run, after which its server counts as unharmed
  let lostServers = 0; // in a row, lost during a run of this page
  let running = false;
  let survivalTimer = 0;
  let leaving = false;

  // The type of a message: the first field after its hash (1) and metadata (2).
  const messageType = (bytes) => {
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

  const setRunning = (isRunning) => {
    running = isRunning;
    clearTimeout(survivalTimer);
    if (!isRunning) survivalTimer = setTimeout(() => { lostServers = 0; }, SURVIVAL_TIME);
  };

  addEventListener("pagehide", () => { leaving = true; });

  window.WebSocket = class extends WebSocket {
    constructor(...args) {
      super(...args);
      this.addEventListener("message", ({ data }) => {
        const type = messageType(new Uint8Array(data));
        if (type === NEW_SESSION) setRunning(true);
        if (type === SCRIPT_FINISHED) setRunning(false);
      });
      this.addEventListener("close", () => {
        if (running && !leaving) lostServers += 1;
        running = false;
        clearTimeout(survivalTimer);
      });
      if (lostServers < 2) return;
      // Streamlit connects only when a server is available again. Reload the page with the new address, because Streamlit
      // does not react to a changed address.
      leaving = true;
      const address = new URL(location.href);
      address.searchParams.set("paused", "1");
      location.replace(address);
    }

    send(data) {
      if (lostServers >= 2) return;
      if (messageType(new Uint8Array(data)) === RERUN) setRunning(true);
      super.send(data);
    }
  };
})();
