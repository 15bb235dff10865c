"""Single HTTP requests to the server, past any proxy."""

from __future__ import annotations

import urllib.error
import urllib.request


def multipart(name: str, data: bytes) -> tuple[bytes, str]:
    """A file as a browser sends it: the body and its content type."""
    quoted = name.replace("\\", "\\\\").replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    head = f'--edge\r\nContent-Disposition: form-data; name="file"; filename="{quoted}"\r\n'
    head += "Content-Type: application/octet-stream\r\n\r\n"
    return head.encode("utf-8", "replace") + data + b"\r\n--edge--\r\n", "multipart/form-data; boundary=edge"


def http(
    method: str, url: str, data: bytes | None = None, headers: dict[str, str] | None = None, xsrf: str = ""
) -> int:
    """The status of one request, 0 if the server closed the connection."""
    headers = {**(headers or {}), "X-Xsrftoken": xsrf, "Cookie": f"_streamlit_xsrf={xsrf}"}
    try:
        with _opener().open(urllib.request.Request(url, data, headers, method=method), timeout=30) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def cookies(base: str) -> dict[str, str]:
    """The cookies that a page gets with its first answers: the server's token, and the proxy's route if there is one."""
    with _opener().open(f"{base}/_stcore/health", timeout=30) as answer:
        given = answer.headers.get_all("Set-Cookie") or []
    return dict(cookie.split(";")[0].split("=", 1) for cookie in given)


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))
