"""A host that shows the Lab as Streamlit Community Cloud does: in a frame of the host's page, below /~/+/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Frame, Page

from benchmarks.proxy import running_nginx

# The attributes of Streamlit's own frames. The page follows Streamlit's two messages about the address of the app.
PAGE = """<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><title>A host</title>
<style>html, body, iframe { margin: 0; border: 0; width: 100%; height: 100%; display: block; }</style>
<iframe title="streamlitApp" allow="clipboard-read; clipboard-write" sandbox="allow-forms allow-modals allow-popups
allow-popups-to-escape-sandbox allow-same-origin allow-scripts allow-downloads"></iframe>
<script>
const frame = document.querySelector("iframe");
frame.src = `/~/+${location.pathname}${location.search}`;
window.messages = [];
addEventListener("message", ({ data, origin, source }) => {
  if (source !== frame.contentWindow || origin !== location.origin || data.stCommVersion !== 1) return;
  messages.push(data);
  if (data.type === "SET_QUERY_PARAM") history.replaceState({}, "", location.pathname + data.queryParams);
  if (data.type === "SET_CURRENT_PAGE_NAME") history.replaceState({}, "", `/${data.currentPageName}${location.search}`);
});
</script>"""
# Every address outside the prefix is answered with that page.
NGINX = """
pid FOLDER/nginx.pid;
events {}
http {
    log_format short '$request_method $request_uri $status';
    access_log FOLDER/access.log short;
    client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy;
    fastcgi_temp_path FOLDER/fastcgi; uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
    server {
        listen 127.0.0.1:PORT;
        location PREFIX/ {
            proxy_pass LAB/;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection "upgrade";
        }
        location / {
            root FOLDER;
            default_type text/html;
            try_files /page.html =404;
        }
    }
}
"""


@dataclass(frozen=True)
class Shell:
    """The address of a host, and its access log."""

    home: str
    log: Path

    def requests(self) -> list[tuple[str, int]]:
        """Every requested address, without its query, with the status of the response."""
        lines = self.log.read_text().splitlines()
        return [(match[1], int(match[2])) for line in lines if (match := re.match(r"\w+ ([^? ]+)\S* (\d+)$", line))]


@contextmanager
def running_shell(folder: Path, port: int, lab: str, prefix: str = "/~/+") -> Iterator[Shell]:
    """The host on a port, before the server of the Lab at `lab`."""
    (folder / "page.html").write_text(PAGE)
    text = NGINX
    for name, value in {"FOLDER": str(folder), "PORT": str(port), "LAB": lab, "PREFIX": prefix}.items():
        text = text.replace(name, value)
    home = f"http://127.0.0.1:{port}"
    with running_nginx(folder, text, f"{home}{prefix}/_stcore/health"):
        yield Shell(home, folder / "access.log")


def frame_of(page: Page) -> Frame:
    """The Lab in the page of the host."""
    frame = page.locator("iframe[title=streamlitApp]").element_handle().content_frame()
    assert frame is not None
    return frame
