"""Workers of `embed_corpus` as actors of a Ray cluster."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from elmo_plugin.bilm.corpus.embed import Event, ShardEmbedder, WorkerFiles
from elmo_plugin.bilm.files.optional_packages import import_optional
from elmo_plugin.bilm.kernels.machine import keep_freed_memory


def ray_module() -> Any:
    """Import `ray`; raise a `ModuleNotFoundError` that says how to install it if it is missing."""
    return import_optional("ray", "ray")


class RayWorker:
    """
    Worker in a Ray cluster: the driver's side of a `ShardActor`.

    # Parameters

    actor : `Any`
        Handle of the `ShardActor`.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        # Ray's stream of the events of the actor's current call; `None` after the last event.
        self.stream: Any = actor.load.options(num_returns="streaming").remote()

    def give(self, number: int) -> None:
        """Assign a shard to the actor."""
        self.stream = self._actor.embed.options(num_returns="streaming").remote(number)

    def kill(self) -> None:
        """Kill the actor's process, even if it hangs."""
        ray_module().kill(self._actor)


class ShardActor:
    """
    Ray actor that computes shards, in a process of its own.

    # Parameters

    files : `WorkerFiles`
        Paths that the worker needs.
    """

    def __init__(self, files: WorkerFiles) -> None:
        keep_freed_memory()
        self._embedder = ShardEmbedder(files)

    def load(self) -> Iterator[Event]:
        """Load plan and biLM; yield a `"placed"` event, then `"ready"` or `"failed"`."""
        node = ray_module().util.get_node_ip_address()
        yield Event("placed", f"process {os.getpid()} on {node}")
        yield from self._embedder.load()

    def embed(self, number: int) -> Iterator[Event]:
        """Compute a shard and yield its events."""
        yield from self._embedder.embed(number)


class RayEngine:
    """
    Engine that starts workers in a Ray cluster. Creating it raises an `OSError` if Ray fails.

    # Parameters

    files : `WorkerFiles`
        Paths on a disk that all machines share, and the number of threads per worker. Each worker
        reserves one CPU per thread.
    address : `str | None`, optional (default = `None`)
        Address of the cluster; `"local"` starts a cluster on this machine for this run. `None`
        takes the first that exists of: the cluster to which this process is connected, the one in
        `RAY_ADDRESS`, one that was started on this machine, and `"local"`.
    """

    def __init__(self, files: WorkerFiles, address: str | None = None) -> None:
        ray = ray_module()
        self._ours = not ray.is_initialized()
        if self._ours:
            try:
                ray.init(address, include_dashboard=False, log_to_driver=False)
            except Exception as error:  # Ray raises a bare Exception on a busy machine
                raise OSError(f"Ray did not start: {_summary(error)}") from error
        self._node = ray.get_runtime_context().get_node_id()
        self._files = files
        # Turn off Ray's restarts, because the supervisor replaces workers and counts failures.
        options = {"num_cpus": files.threads, "max_restarts": 0, "max_task_retries": 0}
        self._actor = ray.remote(**options)(ShardActor)

    @property
    def num_processors(self) -> int:
        """Number of CPUs in the cluster."""
        return int(ray_module().cluster_resources().get("CPU", 1))

    def start(self) -> RayWorker:
        """Start a worker; its actor begins as soon as the cluster has free CPUs."""
        return RayWorker(self._actor.remote(self._files))

    def wait(self, workers: Sequence[Any], seconds: float) -> Iterator[tuple[RayWorker, Event]]:
        """
        Wait at most `seconds` for events of the actors, and yield each event with its worker.

        The loss of the cluster causes an `OSError`.
        """
        ray = ray_module()
        by_stream = {one.stream: one for one in workers if one.stream is not None}
        if not by_stream:
            return
        streams = list(by_stream)
        try:
            ray.wait(streams, num_returns=1, timeout=seconds)
            ready, _ = ray.wait(streams, num_returns=len(streams), timeout=0)
            if not ready:
                self._check_raylet()
        except ray.exceptions.RayError as error:
            raise OSError(f"the Ray cluster is lost: {_summary(error)}") from error
        for stream in ready:
            worker = by_stream[stream]
            event = self._next(stream)
            if event.kind in ("ready", "done", "failed"):
                worker.stream = None
            yield worker, event

    def _check_raylet(self) -> None:
        """
        Raise an `OSError` if Ray's daemon on this machine has died; Ray itself would wait forever.
        """
        if all(node["NodeID"] != self._node or not node["Alive"] for node in ray_module().nodes()):
            raise OSError("Ray's daemon on this machine has ended, and with it this run")

    def _next(self, stream: Any) -> Event:
        ray = ray_module()
        try:
            return ray.get(next(stream))
        except ray.exceptions.RayError as error:
            return Event("failed", _summary(error))

    def close(self) -> None:
        """Disconnect from the cluster; shut it down if it was started for this run."""
        if self._ours:
            ray_module().shutdown()


def _summary(error: Exception) -> str:
    """
    Return an error's type and one line of its message: the last if it is a traceback,
    otherwise the first.
    """
    lines = str(error).strip().splitlines() or [""]
    line = lines[-1] if re.match(r"\w*Error: ", lines[-1]) else lines[0]
    return f"{type(error).__name__}: {line}"
