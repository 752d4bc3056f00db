"""Workers on the machines of a Ray cluster, each an actor."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from elmo_plugin.bilm.corpus.embed import Event, Place, ShardEmbedder
from elmo_plugin.bilm.corpus.extras import needed
from elmo_plugin.bilm.kernels.allocator import keep_freed_memory


def ray_module() -> Any:
    """`ray`."""
    return needed("ray", "ray")


class RayWorker:
    """
    # Parameters

    actor : `Any`
        A handle of `ShardActor`.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        # What it is telling; `None` when it has told all.
        self.stream: Any = actor.load.options(num_returns="streaming").remote()

    def give(self, number: int) -> None:
        """See `Worker`."""
        self.stream = self._actor.embed.options(num_returns="streaming").remote(number)

    def kill(self) -> None:
        """See `Worker`. Ray ends a process that stands still too."""
        ray_module().kill(self._actor)


class ShardActor:
    """
    What Ray runs in a process of its own.

    # Parameters

    place : `Place`
        What it is to work on.
    """

    def __init__(self, place: Place) -> None:
        keep_freed_memory()
        self._embedder = ShardEmbedder(place)

    def load(self) -> Iterator[Event]:
        """See `ShardEmbedder`."""
        node = ray_module().util.get_node_ip_address()
        yield Event("placed", f"process {os.getpid()} on {node}")
        yield from self._embedder.load()

    def embed(self, number: int) -> Iterator[Event]:
        """See `ShardEmbedder`."""
        yield from self._embedder.embed(number)


class RayEngine:
    """
    A cluster's.

    # Parameters

    place : `Place`
        What its workers are to work on; on every machine the same, that is, on a shared disk.
    threads : `int`
        Processors that a worker takes.
    address : `str | None`, optional (default = `None`)
        Of the cluster; `"local"` for one of this machine alone, for this run. If not given, that of
        this process, of the variable `RAY_ADDRESS`, one that was started on this machine, or
        `"local"`, whichever is there first.
    """

    def __init__(self, place: Place, threads: int, address: str | None = None) -> None:
        ray = ray_module()
        self._ours = not ray.is_initialized()
        if self._ours:
            try:
                ray.init(address, include_dashboard=False, log_to_driver=False)
            except Exception as error:  # Ray raises no other where a machine is too busy
                raise OSError(f"Ray did not start: {_said(error)}") from error
        self._node = ray.get_runtime_context().get_node_id()
        self._place = place
        # Restarts and retries are the supervisor's, which counts them.
        self._actor = ray.remote(num_cpus=threads, max_restarts=0, max_task_retries=0)(ShardActor)

    @property
    def num_processors(self) -> int:
        """See `Engine`."""
        return int(ray_module().cluster_resources().get("CPU", 1))

    def start(self) -> RayWorker:
        """See `Engine`."""
        return RayWorker(self._actor.remote(self._place))

    def wait(self, workers: Sequence[Any], seconds: float) -> Iterator[tuple[RayWorker, Event]]:
        """See `Engine`."""
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
            raise OSError(f"the Ray cluster is lost: {_said(error)}") from error
        for stream in ready:
            worker = by_stream[stream]
            event = self._next(stream)
            if event.kind in ("ready", "done", "failed"):
                worker.stream = None
            yield worker, event

    def _check_raylet(self) -> None:
        """
        Without that of this machine no worker may ever have a place, and Ray does not end for it.
        """
        if all(node["NodeID"] != self._node or not node["Alive"] for node in ray_module().nodes()):
            raise OSError("the raylet of this machine has ended, and this run with it")

    def _next(self, stream: Any) -> Event:
        ray = ray_module()
        try:
            return ray.get(next(stream))
        except ray.exceptions.RayError as error:
            return Event("failed", _said(error))

    def close(self) -> None:
        """Leaves the cluster, or ends it where it was made for this run."""
        if self._ours:
            ray_module().shutdown()


def _said(error: Exception) -> str:
    """Of many lines the last, where that is an error of Python's; else the first."""
    lines = str(error).strip().splitlines() or [""]
    said = lines[-1] if re.match(r"\w*Error: ", lines[-1]) else lines[0]
    return f"{type(error).__name__}: {said}"
