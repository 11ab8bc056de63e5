"""Asks a Ray cluster whether it is there, in a process of its own: Ray prints, and may end the process that asks.

    python -P ask_cluster.py HOST:PORT|auto

Prints one JSON object: the `address` that was found, the `mode` that RAY_AUTH_MODE has to have for it, and `error`,
null or why this process could not connect.
"""

import json
import logging
import os
import socket
import sys
from importlib import import_module
from typing import Any

import ray
from ray._private.services import canonicalize_bootstrap_address
from ray.exceptions import AuthenticationError

raylet: Any = import_module("ray._raylet")  # has no types
CONNECT_SECONDS = 5.0
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
    ray.init(address=found, configure_logging=False, log_to_driver=False, logging_level=logging.ERROR)
    return {"address": found, "mode": mode, "error": None}


def _ask_head(address: str, mode: str) -> None:
    """Raises AuthenticationError where the cluster refuses this mode. In a wrong one that it takes, workers fail."""
    os.environ["RAY_AUTH_MODE"] = mode
    raylet.Config.initialize("")  # which reads the variable
    raylet.GcsClient(address=address)


if __name__ == "__main__":
    try:
        said = ask(sys.argv[1])
    except Exception as error:
        said = {"error": (str(error).strip().splitlines() or [type(error).__name__])[0]}
    print(json.dumps(said))
