"""bertviz's head view of our weights in Chromium: the time of a change where the view is built again.

bertviz and the three scripts that its page loads are fetched with pip and npm into a folder that is deleted
afterwards; the Lab does not depend on them. The page gets the scripts from this machine, cached, not from the
network. jQuery is 2.1.0: npm never had the 2.0.0 that bertviz names.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from playwright.sync_api import Browser
from torch import Tensor

_SCRIPTS = {
    "require.js/2.3.6/require.min.js": ("requirejs", "2.3.6", "package/require.js"),
    "d3/5.7.0/d3.min.js": ("d3", "5.7.0", "package/dist/d3.min.js"),
    "jquery/2.0.0/jquery.min.js": ("jquery", "2.1.0", "package/dist/jquery.min.js"),
}
# bertviz needs only two string wrappers of IPython.
_IPYTHON = """class HTML:
    def __init__(self, data):
        self.data = data
Javascript, display = HTML, print
"""
# The page goes into a new frame, as a notebook or `components.html` shows it; the step ends when every line is painted.
_RENDER = """async ([html, lines]) => {
  document.body.innerHTML = "";
  await bench.until(() => true);
  const began = performance.now(), frame = document.createElement("iframe");
  Object.assign(frame, { srcdoc: html, width: 1200, height: 800 });
  document.body.append(frame);
  const drawn = () => frame.contentDocument?.querySelectorAll("#attention line[stroke-opacity]").length === lines;
  return await bench.until(drawn) - began;
}"""


class _Handler(SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Bertviz:
    """The head view in a separate page, used with `with`."""

    def __init__(self, browser: Browser, stopwatch: str) -> None:
        self.browser, self.stopwatch = browser, stopwatch

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="bertviz-")
        folder = Path(self._folder.name)
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", str(folder)]
        subprocess.run([*pip, "bertviz==1.4.1"], check=True)
        npm = ["npm", "pack", "--silent", *(f"{name}@{version}" for name, version, _ in _SCRIPTS.values())]
        subprocess.run(npm, check=True, cwd=folder, stdout=subprocess.DEVNULL)
        for address, (name, version, path) in _SCRIPTS.items():
            with tarfile.open(folder / f"{name}-{version}.tgz") as packed:
                script = packed.extractfile(path)
                assert script
                (folder / address).parent.mkdir(parents=True)
                (folder / address).write_bytes(script.read())
        (folder / "IPython").mkdir()
        (folder / "IPython/__init__.py").touch()
        (folder / "IPython/display.py").write_text(_IPYTHON)
        sys.path.append(str(folder))
        self._scripts = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=folder))
        threading.Thread(target=self._scripts.serve_forever, daemon=True).start()
        self.context = self.browser.new_context(viewport={"width": 1440, "height": 1000})
        self.context.set_default_timeout(600_000)
        self.context.add_init_script(self.stopwatch)
        self.page = self.context.new_page()
        self.page.goto(f"http://127.0.0.1:{self._scripts.server_port}/d3/")
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()
        self._scripts.shutdown()
        self._scripts.server_close()
        sys.path.remove(self._folder.name)
        self._folder.cleanup()

    def step(self, weights: Tensor, tokens: tuple[str, ...]) -> float:
        """The milliseconds to build and to render the head view of one head's weights [query_pos key_pos]."""
        from bertviz import head_view

        began = time.perf_counter()
        html = head_view([weights[None, None]], list(tokens), html_action="return").data
        python = 1000 * (time.perf_counter() - began)
        html = re.sub(r"https://[^/]+/ajax/libs", f"http://127.0.0.1:{self._scripts.server_port}", html)
        self.page.bring_to_front()
        return python + float(self.page.evaluate(_RENDER, [html, weights.numel()]))
