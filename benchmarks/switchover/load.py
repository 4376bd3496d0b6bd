"""The load: a thread that publishes at a steady rate and reads for all subscribers, some milliseconds at a time."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable

from benchmarks.switchover.clients import ClientError, Form, Publisher, Subscriber, connect, subscribe, unsubscribe
from benchmarks.switchover.record import Tally
from lab.namespace import Namespace

READ_EVERY = 0.004
"""Seconds between two looks at what has arrived: 100 subscribers cost 25,000 reads a second at most, whatever the
rate. Times of arrival are this coarse."""
MQTT = ("127.0.0.1", 1883)
"""Where each broker of the lab serves the clients of its host."""
SETTLE = 20.0
"""Seconds without any arrival after which what is missing counts as lost."""


class Load:
    """Publishers and subscribers in the hosts of a lab; a context manager. Methods are called from outside the thread
    and return when they have taken effect. What a client dies of is raised by `check` and at the end."""

    def __init__(self, hosts: Callable[[str], Namespace], topic: str) -> None:
        self.form = Form(topic)
        self.publishers: list[Publisher] = []
        self.subscribers: dict[str, Subscriber] = {}
        """Those that are there, by name."""
        self.stable: set[str] = set()
        self.left = Tally()
        """What was wrong at those that have left again."""
        self.cpu = 0.0
        """Seconds of processor time that the thread has used."""
        self._hosts = hosts
        self._poll = select.epoll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end.set()
        self._thread.join()
        for sock in [one.sock for one in self.publishers] + [one.sock for one in self.subscribers.values()]:
            sock.close()
        self._poll.close()

    # --- who takes part ---------------------------------------------------------------------------------------------

    def publish(self, host: str, rate: float, qos: int) -> Publisher:
        """A client of the host's broker begins to publish."""
        number = len(self.publishers)
        sock = self._hosts(host).connect(MQTT, 30.0)
        connect(sock, f"publisher{number}")
        sock.setblocking(False)
        publisher = Publisher(sock, self.form, number, rate, qos)
        with self._lock:
            self.publishers.append(publisher)
            self._watch(sock.fileno(), publisher.read)
        return publisher

    def stop(self, publisher: Publisher) -> None:
        """It publishes no more; its connection stays."""
        with self._lock:
            publisher.active = False

    def join(self, name: str, host: str, qos: int, *, stable: bool = False) -> None:
        """A subscriber joins; returns after its SUBACK, from when on all is owed. `stable`: it stays to the end."""
        sock = self._hosts(host).connect(MQTT, 30.0)
        connect(sock, name)
        early = subscribe(sock, self.form.topic, qos)
        with self._lock:
            owed = {publisher.number: publisher.sent + 1 for publisher in self.publishers}
            sock.setblocking(False)
            self.subscribers[name] = client = Subscriber(sock, self.form, qos, early, owed)
            if stable:
                self.stable.add(name)
            self._watch(sock.fileno(), client.read)

    def leave(self, name: str) -> None:
        """A subscriber leaves, and is judged."""
        with self._lock:
            client = self.subscribers.pop(name)
            self._poll.unregister(client.sock.fileno())
            del self._readers[client.sock.fileno()]
            for flow in client.flows.values():
                self.left.add(flow.tally(None))
        unsubscribe(client.sock, self.form.topic)
        client.sock.close()

    # --- what came of it ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises what a client has died of."""
        if self._fault is not None:
            raise self._fault

    def settle(self) -> None:
        """Stop publishing, and return when all that is owed has arrived, or nothing arrives any more."""
        with self._lock:
            for publisher in self.publishers:
                publisher.active = False
        before, deadline = -1, 0.0
        while (missing := self.tally().lost) and not self._fault:
            if missing != before:
                before, deadline = missing, time.monotonic() + SETTLE
            elif time.monotonic() > deadline:
                break
            time.sleep(0.05)
        self.check()

    def tally(self) -> Tally:
        """What is wrong at the stable subscribers now; what is under way counts as lost."""
        total = Tally()
        with self._lock:
            for name in self.stable:
                for publisher in self.publishers:
                    flow = self.subscribers[name].flows.get(publisher.number)
                    total.add(flow.tally(publisher.sent) if flow is not None else Tally(lost=publisher.sent))
        return total

    def wrong_at(self) -> dict[str, Tally]:
        """The stable subscribers at which something is wrong, and what."""
        found = {}
        for name in sorted(self.stable):
            total = Tally()
            for publisher in self.publishers:
                total.add(self.subscribers[name].flows[publisher.number].tally(publisher.sent))
            if total.wrong:
                found[name] = total
        return found

    def watch_gaps(self) -> None:
        """Look for gaps, and for late messages, from now on."""
        now = time.monotonic()
        with self._lock:
            for name in self.stable:
                self.subscribers[name].oldest = 0.0
                for flow in self.subscribers[name].flows.values():
                    flow.since(now)

    def gap(self, publisher: Publisher) -> tuple[float, str]:
        """The longest time in which a stable subscriber got nothing of a publisher, in seconds, and which one that
        was. A gap that is not over counts up to now."""
        now = time.monotonic()
        with self._lock:
            flows = [(self.subscribers[name].flows[publisher.number], name) for name in self.stable]
            return max((max(flow.gap, now - flow.arrived if publisher.active else 0.0), name) for flow, name in flows)

    def oldest(self) -> float:
        """The longest that a message was under way to a stable subscriber, in seconds."""
        with self._lock:
            return max(self.subscribers[name].oldest for name in self.stable)

    def flowing(self, publisher: Publisher) -> bool:
        """Every stable subscriber has got something of the publisher's last second."""
        now = time.monotonic()
        with self._lock:
            return all(
                (flow := self.subscribers[name].flows.get(publisher.number)) is not None
                and now - flow.arrived < 0.1
                and publisher.sent - flow.last < 2000
                for name in self.stable
            )

    # --- the thread -----------------------------------------------------------------------------------------------

    def _watch(self, descriptor: int, reader: Callable[[], None]) -> None:
        self._readers[descriptor] = reader
        self._poll.register(descriptor, select.EPOLLIN)

    def _run(self) -> None:
        try:
            self._serve()
        except (OSError, ClientError) as error:
            self._fault = error

    def _serve(self) -> None:
        look = 0.0
        while not self._end.is_set():
            now = time.monotonic()
            with self._lock:
                for publisher in self.publishers:
                    if publisher.active and publisher.due <= now:
                        publisher.publish(now)
                if now >= look:
                    for descriptor, _ in self._poll.poll(0):
                        self._readers[descriptor]()
                    look = now + READ_EVERY
                    self.cpu = time.thread_time()
                due = min([publisher.due for publisher in self.publishers if publisher.active], default=look)
            time.sleep(max(0.0002, min(due, look) - time.monotonic()))
