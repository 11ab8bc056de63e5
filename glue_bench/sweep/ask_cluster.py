"""Asks a Ray cluster whether it is there, in a process of its own: Ray prints, and may end the process that asks.

    python -P ask_cluster.py HOST:PORT|auto

Prints a line once it begins to ask, because it may take Python long to come so far, and then one JSON object: the
`address` that was found, the `mode` that RAY_AUTH_MODE has to have for it, and `error`, null or why it is of no use.
"""

import json
import os
import socket
import sys
from importlib import import_module
from typing import Any

from ray._private.services import canonicalize_bootstrap_address, get_node_to_connect_for_driver
from ray.exceptions import AuthenticationError

raylet: Any = import_module("ray._raylet")  # has no types
CONNECT_SECONDS = 5
COPY = "copy ~/.ray/auth_token from the machine of its head"


def ask(address: str) -> dict[str, Any]:
    """What is printed."""
    found = canonicalize_bootstrap_address(address)
    if found is None:
        return {"error": "none runs on this machine"}
    host, _, port = found.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    mode = "disabled"
    try:
        _ask_head(found, mode)
    except AuthenticationError:
        mode = "token"
        if not raylet.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
            return {"error": f"it asks for a token, and this machine has none; {COPY}"}
        try:
            _ask_head(found, mode)
        except AuthenticationError:
            return {"error": f"its token is not that of this machine; {COPY}"}
    return {"address": found, "mode": mode, "error": None}


def _ask_head(address: str, mode: str) -> None:
    """Find this machine's part of the cluster.

    Raises:
        AuthenticationError: the cluster refuses this mode. In a wrong one that it takes, workers would fail.
        RuntimeError: there is none.
    """
    os.environ["RAY_AUTH_MODE"] = mode
    raylet.Config.initialize("")  # which reads the variable
    head = raylet.GcsClient(address=address)
    try:
        get_node_to_connect_for_driver(head, timeout_seconds=CONNECT_SECONDS)
    except RuntimeError as error:
        why = f"this machine is none of its; first run: ray start --address={address}"
        raise RuntimeError(why) from error


if __name__ == "__main__":
    os.write(1, b"asking\n")
    try:
        said = ask(sys.argv[1])
    except Exception as error:
        said = {"error": (str(error).strip().splitlines() or [type(error).__name__])[0]}
    os.write(1, json.dumps(said).encode())
