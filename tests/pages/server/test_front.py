"""nginx as the image and compose.yaml put it before the Lab: who is counted, who is believed, and how both end."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from conftest import free_port

from benchmarks.proxy import running_nginx
from benchmarks.server import Server, _name
from deploy import front

pytestmark = pytest.mark.slow  # each starts nginx

DESCRIPTORS = 464
MOST, OF_ADDRESS = 100, 60
"""What these descriptors allow, four for a connection: a server with few, so that a test opens few."""
OTHER = "127.0.0.2"
GET = b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n"


class Echo(BaseHTTPRequestHandler):
    """Answers with the visitor's address, as the Lab would read it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"ok" if self.path.endswith("health") else (self.headers["X-Forwarded-For"] or "operator").encode()
        if "/static/" in self.path:
            body = self.path.encode() * 1000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/javascript")
        self.send_header("Content-Encoding", "identity")
        self.send_header("Cache-Control", "public, max-age=31536000" if "/static/" in self.path else "no-cache")
        self.end_headers()
        self.wfile.write(body)
        asked.append(self.path)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        pass


asked: list[str] = []


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def proxies() -> list[str]:
    return []


@pytest.fixture
def home(tmp_path: Path, port: int, proxies: list[str]) -> Iterator[str]:
    """nginx before a server that says whom it sees."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as lab:
        threading.Thread(target=lab.serve_forever, daemon=True).start()
        text = front.configuration(
            tmp_path, f"127.0.0.1:{port}", [f"127.0.0.1:{lab.server_port}"], proxies, DESCRIPTORS
        )
        assert "client_header_timeout 10s;" in text
        text = text.replace("client_header_timeout 10s;", "client_header_timeout 600s;")  # no clock ends a test
        home = f"http://127.0.0.1:{port}"
        with running_nginx(tmp_path, text, f"{home}/_stcore/health"):
            asked.clear()
            yield home
        lab.shutdown()


def read(url: str, **headers: str) -> bytes:
    request = Request(url, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return bytes(urlopen(request, timeout=60).read())


def opened(port: int, sent: bytes = b"") -> socket.socket:
    """A connection from another address, which has sent this."""
    connection = socket.create_connection(("127.0.0.1", port), source_address=(OTHER, 0))
    connection.sendall(sent)
    return connection


def is_refused(connection: socket.socket) -> bool:
    """Waits until the server says something to a connection, and gives whether it has closed it instead."""
    connection.settimeout(180)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def is_open(connection: socket.socket) -> bool:
    """Whether the server has neither closed the connection nor sent anything so far."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    except ConnectionError:
        pass
    return False


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: lab\r\nX-Long: " + b"x" * 2**14])
def test_connections_count_from_their_first_byte(
    home: str, port: int, sent: bytes, capfd: pytest.CaptureFixture
) -> None:
    kept = [opened(port, sent) for _ in range(OF_ADDRESS)]
    refused = [opened(port) for _ in range(20)]
    assert all(map(is_refused, refused))
    assert all(map(is_open, kept))
    assert read(home) == b"127.0.0.1"  # another address is not concerned
    kept.pop().close()
    while is_refused(once_more := opened(port, GET)):  # until the one that left is noticed
        once_more.close()
    assert "limiting" not in capfd.readouterr().err
    for connection in (*kept, *refused, once_more):
        connection.close()


def test_body_that_nobody_wants_is_not_read(home: str, port: int) -> None:
    head = b"GET / HTTP/1.1\r\nHost: lab\r\nContent-Length: 1000000\r\n\r\n"
    with opened(port, head + bytes(1000)) as connection:
        assert b" 400 " in connection.makefile("rb").readline()
    with pytest.raises(HTTPError, match="413"):
        urlopen(Request(f"{home}/heads", data=bytes(2**14)), timeout=60)
    assert asked == []


def test_script_is_asked_for_once_and_compressed_once(home: str) -> None:
    whole = read(f"{home}/app/static/1/plotly.js")
    assert whole == b"/app/static/1/plotly.js" * 1000
    for query in ("", "?1", "?2"):
        packed = read(f"{home}/app/static/1/plotly.js{query}", Accept_Encoding="br, gzip")
        assert gzip.decompress(packed) == whole
        assert len(packed) < len(whole) / 10
    assert asked == ["/app/static/1/plotly.js"] * 2  # as it is, and to be compressed
    read(f"{home}/app//static/1/./plotly.js")  # one address, however it is written
    assert len(asked) == 2


def test_nobody_names_another_address_for_himself(home: str) -> None:
    assert read(home, X_Forwarded_For="192.0.2.1") == b"127.0.0.1"


@pytest.mark.parametrize("proxies", [["10.0.0.0/8", "127.0.0.1"]])
@pytest.mark.parametrize(
    ("forwarded", "seen"),
    [("192.0.2.1", b"192.0.2.1"), ("192.0.2.1, 198.51.100.7", b"198.51.100.7"), ("2001:db8::1", b"2001:db8::1")],
)
def test_trusted_proxy_names_the_visitor_that_it_saw_itself(home: str, forwarded: str, seen: bytes) -> None:
    assert read(home, X_Forwarded_For=forwarded) == seen
    assert read(home) == b"operator"  # a probe
    assert read(home, X_Forwarded_For="nobody") == b"127.0.0.1"


@pytest.mark.parametrize("proxies", [["127.0.0.2"]])
def test_trusted_proxy_stands_for_many_visitors(home: str, port: int) -> None:
    connections = [opened(port) for _ in range(MOST - 10)]
    assert read(home, X_Forwarded_For="192.0.2.1") == b"127.0.0.1"  # there is room, for ten
    more = [opened(port) for _ in range(20)]
    assert is_refused(more[-1])  # but not for more than the server has descriptors
    assert all(map(is_open, connections))
    for connection in (*connections, *more):
        connection.close()


def test_unreadable_network_is_refused_in_a_sentence() -> None:
    assert front.networks("10.0.0.0/8 192.0.2.1 fc00::/7") == ["10.0.0.0/8", "192.0.2.1", "fc00::/7"]
    with pytest.raises(SystemExit, match=r"LAB_PROXIES must be addresses or networks .* got 'traefik': correct it"):
        front.networks("10.0.0.0/8 traefik")


def test_connections_stay_below_the_descriptors() -> None:
    few = front.configuration(Path("/x"), "0.0.0.0:1", ["a:1"], descriptors=1024)
    assert "limit_conn all 240;" in few
    assert "worker_connections 1024;" in few
    many = front.configuration(Path("/x"), "0.0.0.0:1", ["a:1", "b:1"], descriptors=2**20)
    assert "limit_conn all 2000;" in many
    assert "limit_conn of_address 1200;" in many
    assert "worker_rlimit_nofile 8064;" in many


def test_closed_connection_counts_until_it_is_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as reader:
        port = listening.getsockname()[1]
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
        reader.connect(("127.0.0.1", port))
        served, _ = listening.accept()
        assert front._unread_bytes(port) == 0
        served.setblocking(False)
        sent = served.send(bytes(2**16))
        served.close()
        assert front._unread_bytes(port) > 0
        assert len(reader.makefile("rb").read()) == sent
        while front._unread_bytes(port):  # the end of the connection travels, too
            pass


def child(server: Server, name: str) -> int:
    (found,) = [process for process in server._processes()[1:3] if name in _name(process)]
    return found


@pytest.mark.parametrize(("killed", "word"), [("nginx", "nginx"), ("python", "The Lab")])
def test_one_does_not_go_on_without_the_other(killed: str, word: str) -> None:
    with Server(front=True) as server:
        os.kill(child(server, killed), signal.SIGKILL)
        assert server.process.wait(180) != 0
        assert f"{word} has ended with -9." in server.errors()


def test_sigterm_ends_both_without_an_error() -> None:
    with Server(front=True) as server:
        processes = server._processes()
        code, _ = server.terminate(180)
        assert code == 0
        assert not [process for process in processes if Path(f"/proc/{process}").exists()]
        assert "rror" not in server.errors()
