"""Workers that run in this process, an event at a time, and fail where they are told to."""

import itertools

from elmo_plugin.bilm.corpus.embed import Event, ShardEmbedder


class InlineWorker:
    def __init__(self, engine, name):
        self.engine, self.name = engine, name
        self.killed = False
        self.embedder = ShardEmbedder(engine.place)
        self.events = itertools.chain([Event("placed", name)], self.embedder.load())

    def give(self, number):
        self.engine.given.append(number)
        self.events = self.embedder.embed(number)

    def kill(self):
        self.killed = True
        self.events = iter(())


class InlineEngine:
    """`order`: which of the workers goes on next, by their number."""

    num_processors = 2

    def __init__(self, place, order=None):
        self.place, self.order = place, order or itertools.count().__next__
        self.given, self.workers = [], []
        self.closed = False

    def start(self):
        self.workers.append(InlineWorker(self, f"worker {len(self.workers)}"))
        return self.workers[-1]

    def wait(self, workers, seconds):
        worker = workers[self.order() % len(workers)]
        event = next(worker.events, None)
        if event is not None:
            yield worker, event

    def close(self):
        assert all(worker.killed for worker in self.workers)
        self.closed = True
