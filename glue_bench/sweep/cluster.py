"""The Ray cluster that workers run on: this machine alone, or one at an address; and whether it is still there."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import ray
from ray._private import worker as ray_worker
from ray.exceptions import RayError

from glue_bench.errors import UserError, first_line
from glue_bench.sweep.executors import ClusterLostError

Machine = Mapping[str, float]
"""What a machine has by Ray's names: CPU, GPU."""

ANSWER_SECONDS = 15.0
"""The longest time to connect; Ray alone would try for a minute, print, and might end this process."""
LOOK_SECONDS = 5.0
HEAD_SECONDS = 20.0
"""So long the head may be silent before it counts as lost."""
ASK_HEAD_SECONDS = 2.0
AUTH_MODE = "RAY_AUTH_MODE"
STORE_BYTES = 256 * 2**20  # holds predictions on their way to this process; Ray would take a third of the memory
# Nothing is told to Ray's makers. To a worker zero GPUs are none, not all of them. Workers of this machine have the
# priority of the command that starts them: with Ray's own (nice 15) they would starve beside any other work. And no
# processes are started in advance, because they would lack the workers' environment, and never be used. Ray would end
# this process, with a line of its own, a minute after the head was lost, which a busy machine needs to let cells end.
RAY_SETTINGS = {
    **{"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1", "RAY_worker_niceness": "0"},
    **{"RAY_prestart_worker_first_driver": "0", "RAY_gcs_rpc_server_reconnect_timeout_s": "300"},
}


@contextmanager
def connected(cpus: int, address: str | None) -> Iterator[None]:
    """Connected to a cluster, or to `cpus` of this machine, whose workers end with it. Ray then speaks as before.

    Raises:
        UserError: there is no such cluster, its token is another one, or Ray does not start.
    """
    logger, shown, mode = logging.getLogger("ray"), ray_worker._worker_logs_enabled, os.environ.get(AUTH_MODE)
    level, handlers = logger.level, list(logger.handlers)
    try:
        _connect(cpus, address)
        yield
    finally:
        ray.shutdown()
        _authenticate(mode)
        ray_worker._worker_logs_enabled = shown
        logger.setLevel(level)
        logger.handlers[:] = handlers  # Ray takes its own away when it ends


def _connect(cpus: int, address: str | None) -> None:
    # What becomes of workers is said by the sweep; Ray would say it on standard output, between the tables.
    ray_worker._worker_logs_enabled = False
    logging.getLogger("ray").setLevel(logging.ERROR)
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    options: dict[str, Any] = {"configure_logging": False, "log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        options |= {"address": "local", "num_cpus": cpus, "include_dashboard": False}
        options["object_store_memory"] = STORE_BYTES
    else:
        found = _ask(address)
        _authenticate(found["mode"])
        options["address"] = found["address"]
    terminated = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options)
    except Exception as error:  # of no class of its own where this machine was too busy for half a minute
        raise UserError(f"Ray did not start; try again when this machine is less busy ({first_line(error)})") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminated)  # Ray's own handler aborts


def _authenticate(mode: str | None) -> None:
    """A cluster that asks for a token, and one that does not, are spoken to in different ways."""
    if mode is None:
        os.environ.pop(AUTH_MODE, None)
    else:
        os.environ[AUTH_MODE] = mode
    raylet: Any = import_module("ray._raylet")  # has no types
    raylet.Config.initialize("")  # which reads the variable


def _ask(address: str) -> dict[str, Any]:
    """What `ask_cluster.py` says of an address."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("ask_cluster.py")), address]
    said: dict[str, Any] = {"error": "what listens there does not answer as one"}  # then Ray ends the process
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as asking:
        assert asking.stdout is not None, "it is a pipe"
        asking.stdout.readline()
        try:
            said = json.loads(asking.communicate(timeout=ANSWER_SECONDS)[0] or json.dumps(said))
        except subprocess.TimeoutExpired:
            asking.kill()
            said["error"] = f"no answer within {ANSWER_SECONDS:g} s"
    if said["error"]:
        raise UserError(
            f"cannot use the Ray cluster at '{address}': {said['error']} (docs/operations.md says how to start one)"
        )
    return said


class Cluster:
    """The machines of the cluster that this process is connected to."""

    def __init__(self) -> None:
        self._heard = time.monotonic()

    def machines(self) -> list[Machine] | None:
        """What those have that are alive; None where the head of the cluster does not answer now.

        Raises:
            ClusterLostError: the head has not answered for a while.
        """
        try:
            process: Any = ray_worker.global_worker
            nodes = process.gcs_client.get_all_node_info(timeout=ASK_HEAD_SECONDS).values()
        except RayError:
            silent = time.monotonic() - self._heard
            if silent > HEAD_SECONDS:
                raise ClusterLostError(f"the head of the Ray cluster has not answered for {silent:.0f} s") from None
            return None
        self._heard = time.monotonic()
        return [dict(node.resources_total) for node in nodes if node.state == node.ALIVE]

    def processes(self) -> dict[Any, str]:
        """host:pid of this process's actors, by their ids, alive or not yet; without those that wait for a machine.

        Empty where the head does not answer now.
        """
        process: Any = ray_worker.global_worker

        async def ask() -> Mapping[Any, Any]:
            asked = {"job_id": process.current_job_id, "timeout": ASK_HEAD_SECONDS}
            return await process.gcs_client.async_get_all_actor_info(**asked)

        with ThreadPoolExecutor(1) as thread:  # a notebook has a loop of its own in the caller's
            try:
                found = thread.submit(asyncio.run, ask()).result()
            except RayError:
                return {}
        return {actor: f"{one.address.ip_address}:{one.pid}" for actor, one in found.items() if one.pid}
