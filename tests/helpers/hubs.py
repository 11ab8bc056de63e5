"""Servers of this machine in place of the hub: one that never connects, and one that is slow."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest


def point_to(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the hub's clients ask another address, as HF_ENDPOINT does before they are imported."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)


@contextmanager
def silent_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the hub an address where connections hang: a socket whose queue is full.

    The wait for a connection is short.
    """
    monkeypatch.setattr("glue_bench.remote.CONNECT_SECONDS", 0.3)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        place = listener.getsockname()
        clients: list[socket.socket] = []
        for _ in range(8):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(place)
            clients.append(client)
        point_to(f"http://127.0.0.1:{place[1]}", monkeypatch)
        yield
        for client in clients:
            client.close()


@contextmanager
def slow_hub(seconds: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Make the hub a server that has nothing, and says so late.

    The list has the paths that were asked for.
    """
    paths: list[str] = []

    class Slow(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            paths.append(self.path)
            time.sleep(seconds)
            self.send_error(404)

        def do_GET(self) -> None:
            self.do_HEAD()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    point_to(f"http://127.0.0.1:{server.server_port}", monkeypatch)
    try:
        yield paths
    finally:
        server.shutdown()
        server.server_close()
