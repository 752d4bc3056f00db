"""Workers that run in this process."""

import pickle
from concurrent.futures import Future

import torch

from elmo_plugin.bilm.extraction import engine


class InlineWorker:
    start_seconds = 0.0

    def __init__(self, workers):
        self.workers = workers

    def compute(self, shard, progress_file):
        self.workers.given.append(shard[0])
        future = Future()
        self.workers.waiting.append((future, shard, progress_file))
        if self.workers.order is None:
            self.workers.compute(0)
        return future

    def kill(self):
        self.workers.killed.append(self)

    def describe(self, error):
        return f"{type(error).__name__}: {error}"


class InlineWorkers:
    """With an `order`, a random number generator, shards are computed when nothing else is done."""

    made = []
    order = None

    def __init__(self, job, threads):
        self.job, self.threads = job, threads
        self.given, self.waiting, self.started, self.killed = [], [], [], []
        self.made.append(self)

    def num_processors(self):
        return 2

    def start(self):
        self.started.append(InlineWorker(self))
        return self.started[-1]

    def check(self):
        self.compute(self.order.randrange(len(self.waiting)))

    def compute(self, index):
        future, *arguments = self.waiting.pop(index)
        torch.set_num_threads(self.threads)
        engine._job[:] = pickle.loads(self.job)
        try:
            future.set_result(engine.compute_shard(*arguments))
        except Exception as error:
            future.set_exception(error)
