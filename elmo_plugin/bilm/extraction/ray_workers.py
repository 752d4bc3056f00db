"""Workers as actors of a Ray cluster."""

import math
import re
from concurrent.futures import Future
from typing import Any

from elmo_plugin.bilm.extraction.engine import Shard, compute_shard, start_worker
from elmo_plugin.bilm.files.optional_packages import import_optional


def ray_module() -> Any:
    """Import `ray`; raise a `ModuleNotFoundError` that says how to install it if it is missing."""
    return import_optional("ray")


class ShardActor:
    """Process of a Ray cluster in which `start_worker` has run."""

    def __init__(self, job: bytes, threads: int) -> None:
        start_worker(job, threads)

    def compute(self, shard: Shard, progress_file: str) -> Any:
        """Compute a shard in the actor's process."""
        return compute_shard(shard, progress_file)


class RayWorker:
    """Worker of a Ray cluster, as its driver sees it: a handle of a `ShardActor`."""

    start_seconds = math.inf  # it may wait for a free CPU

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def compute(self, shard: Shard, progress_file: str) -> Future:
        """Compute a shard in the actor's process."""
        return self._actor.compute.remote(shard, progress_file).future()

    def kill(self) -> None:
        """End the process at once, even if it hangs."""
        ray_module().kill(self._actor)

    @staticmethod
    def describe(error: BaseException) -> str:
        """Return an error's type and the first line of its message, of a traceback the last."""
        lines = str(error).strip().splitlines() or [""]
        line = lines[-1] if re.match(r"\w*Error: ", lines[-1]) else lines[0]
        return f"{type(error).__name__}: {line}"


class RayWorkers:
    """
    Starts workers in a Ray cluster. The constructor raises an `OSError` if Ray does not start.

    Each worker reserves a CPU for each of its `threads`. `address` is that of the cluster;
    `"local"` starts a cluster on this machine for this run. `None` takes the first that exists of:
    the cluster to which this process is connected, the one in `RAY_ADDRESS`, one that was started
    on this machine, and `"local"`.
    """

    def __init__(self, job: bytes, threads: int, address: str | None = None) -> None:
        ray = ray_module()
        self._ours = not ray.is_initialized()
        if self._ours:
            try:
                ray.init(address, include_dashboard=False, log_to_driver=False)
            except Exception as error:  # Ray raises a bare Exception on a busy machine
                described = RayWorker.describe(error)
                raise OSError(f"Ray did not start: {described}") from error
        self._node = ray.get_runtime_context().get_node_id()
        # Turn off Ray's restarts, because `run_shards` replaces workers and counts failures.
        options = {"num_cpus": threads, "max_restarts": 0, "max_task_retries": 0}
        self._actor = ray.remote(**options)(ShardActor)
        self._arguments = ray.put(job), threads

    def num_processors(self) -> int:
        """Return the number of CPUs in the cluster."""
        return int(ray_module().cluster_resources().get("CPU", 1))

    def start(self) -> RayWorker:
        """Start a worker; its actor begins as soon as the cluster has free CPUs."""
        return RayWorker(self._actor.remote(*self._arguments))

    def check(self) -> None:
        """Raise an `OSError` if the cluster or this machine's Ray is lost; Ray would wait."""
        try:
            nodes = ray_module().nodes()
        except Exception as error:
            raise OSError(f"the Ray cluster is lost: {RayWorker.describe(error)}") from error
        if all(node["NodeID"] != self._node or not node["Alive"] for node in nodes):
            raise OSError("Ray's daemon on this machine has ended, and with it this run")

    def close(self) -> None:
        """Disconnect from the cluster; shut it down if it was started for this run."""
        if self._ours:
            ray_module().shutdown()
