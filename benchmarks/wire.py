"""Single HTTP requests to the server, bypassing proxies."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from http.client import HTTPException
from urllib.parse import urlsplit


def multipart(name: str, data: bytes) -> tuple[bytes, str]:
    """A file as a browser sends it: returns the body and its content type."""
    quoted = name.replace("\\", "\\\\").replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    head = f'--edge\r\nContent-Disposition: form-data; name="file"; filename="{quoted}"\r\n'
    head += "Content-Type: application/octet-stream\r\n\r\n"
    return head.encode("utf-8", "replace") + data + b"\r\n--edge--\r\n", "multipart/form-data; boundary=edge"


class Status(int):
    """The status of an answer, 0 if the server closed the connection, with the sentence of a refusal."""

    words = ""


def http(
    method: str,
    url: str,
    data: bytes | None = None,
    headers: dict[str, str] | None = None,
    xsrf: str = "",
    timeout: float = 30,
) -> Status:
    """The status of one request."""
    headers = {**(headers or {}), "X-Xsrftoken": xsrf, "Cookie": f"_streamlit_xsrf={xsrf}"}
    try:
        with _opener().open(urllib.request.Request(url, data, headers, method=method), timeout=timeout) as answer:
            answer.read()
            return Status(answer.status)
    except urllib.error.HTTPError as error:
        status = Status(error.code)
        status.words = error.read(1000).decode("utf-8", "replace")
        return status
    except (OSError, HTTPException):  # HTTPException if an answer breaks off
        return Status(0)


def ask(url: str) -> socket.socket:
    """Sends a request and does not read the answer; the receive buffer is small."""
    parts = urlsplit(url)
    asking = socket.socket()
    asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
    asking.connect((parts.hostname, parts.port))
    asking.sendall(f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    return asking


def cookies(base: str) -> dict[str, str]:
    """The cookies that a page gets with its first answers: the server's token, and the proxy's route if there is one."""
    with _opener().open(f"{base}/_stcore/health", timeout=30) as answer:
        headers = answer.headers.get_all("Set-Cookie") or []
    return dict(cookie.split(";")[0].split("=", 1) for cookie in headers)


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))
