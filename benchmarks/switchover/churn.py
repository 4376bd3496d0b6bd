"""Subscribers that come and go: a thread that has one join or leave at a time, at random."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

from benchmarks.switchover.load import Load


class Churn:
    """A context manager; those that are there at its end stay."""

    def __init__(self, load: Load, hosts: Sequence[str], each: int, qos: int, seed: int, pause: float = 0.2) -> None:
        """`each` clients on each host that may come; `pause`: mean seconds between two acts."""
        self.joins = self.leaves = 0
        self._load, self._qos, self._pause = load, qos, pause
        self._clients = {f"guest-{host}-{number}": host for host in hosts for number in range(each)}
        self._rng = random.Random(seed)
        self._end = threading.Event()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="churn", daemon=True)

    def __enter__(self) -> Churn:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            while not self._end.wait(self._rng.uniform(0, 2 * self._pause)):
                self._act(self._rng.choice(sorted(self._clients)))
        except Exception as error:  # it is raised where the churn ends
            self._fault = error

    def _act(self, name: str) -> None:
        if name in self._load.subscribers:
            self._load.leave(name)
            self.leaves += 1
        else:
            self._load.join(name, self._clients[name], self._qos)
            self.joins += 1
