"""The samples of a broker for ``/metrics``. `scripts/metrics_page.py` writes docs/metrics.md from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from saps.frontend.mqtt.totals import totals
from saps.frontend.web.http.metrics import Histogram, Sample
from saps.overlay.membership.members import What
from saps.statistics import LATENCY_BOUNDS

if TYPE_CHECKING:
    from saps.broker.parts import Parts


def samples(broker: Parts, *, ready: bool, origins_refused: int) -> Iterator[Sample]:
    """Yield all samples at present. `ready` is the answer of ``/readyz``, `origins_refused` the number of requests
    refused by their origin."""
    yield Sample("ready", "1 while the broker serves clients, as /readyz says.", float(ready))
    yield from _clients(broker)
    yield from _access(broker, origins_refused)
    yield from _mesh(broker)
    yield from _beside(broker)


def _total(name: str, text: str, value: float) -> Sample:
    return Sample(name, text, value, counter=True)


def _clients(broker: Parts) -> Iterator[Sample]:
    """Yield the samples of clients and their messages."""
    frontend, hub = broker.server.frontend, broker.hub
    found, counts = totals(frontend), frontend.counts
    sockets = {name: value for source in broker.server.sources for name, value in source().items()}
    yield _total("messages_published", "Messages published by clients here.", hub.published)
    yield _total("messages_received", "Messages that came from other brokers.", hub.received)
    yield _total("messages_delivered", "Copies of messages handed to clients here.", hub.delivered)
    yield _total("messages_dropped", "Messages given up for clients that were away or too slow.", found.dropped)
    yield _total("bytes_received", "Bytes from clients, on the wire.", float(sockets["broker/bytes/received"]))
    yield _total("bytes_sent", "Bytes to clients, on the wire.", float(sockets["broker/bytes/sent"]))
    yield _total("connects", "CONNECT packets.", counts.connects)
    yield _total("clients_unfinished", "Clients disconnected as unfinished packets took too much.", counts.unfinished)
    yield _total("sessions_evicted", "Sessions ended as there were too many.", counts.evicted)
    yield _total("log_lines_left_out", "Log lines about clients that were not written.", counts.unlogged)
    yield _total("clients_refused", "Clients turned away by a limit.", counts.refused)
    yield _total("clients_too_slow", "Clients disconnected as their queues were full.", counts.too_slow)
    yield _total("sessions_expired", "Sessions whose clients did not come back.", counts.expired)
    yield Sample("clients_connected", "Clients connected.", found.connected)
    yield Sample("sessions", "Sessions of clients here or away.", found.connected + found.away)
    yield Sample("subscriptions", "Subscriptions of clients here.", found.subscriptions)
    yield Sample("messages_inflight", "Messages sent to clients and not acknowledged.", found.inflight)
    yield Sample("messages_queued", "Messages that wait for clients.", found.queued)
    yield Sample("queued_bytes", "Bytes kept for slow clients.", frontend.queued.used)
    yield Sample("retained_messages", "Retained messages known here.", len(hub.retained))
    refused = hub.retained.refused + broker.mesh.node.retained.store.refused
    yield _total("retained_refused", "Retained messages not kept for lack of room.", refused)
    yield Sample("agents", "User agents: publishers and subscribers.", len(hub.agents))
    latency = Histogram(LATENCY_BOUNDS, hub.statistics.latency, hub.statistics.waited) if hub.statistics else NO_LATENCY
    text = "Seconds until all members had confirmed a publication of QoS 1 or 2 from a client here."
    yield Sample("publication_latency_seconds", text, latency)


def _access(broker: Parts, origins_refused: int) -> Iterator[Sample]:
    """Yield the samples of refusals, and of the files that decide them."""
    guard, identity, policy = broker.access.guard, broker.identity, broker.policy
    refused = {
        "password": float(guard.counts.logins) if guard is not None else 0.0,
        "backed_off": float(guard.counts.backed_off) if guard is not None else 0.0,
        "busy": float(guard.counts.busy) if guard is not None else 0.0,
        "unavailable": float(guard.counts.unavailable) if guard is not None else 0.0,
    }
    text = (
        "Refused logins. `password`: wrong or missing; `backed_off`: too many failures from the address; `busy`: queue "
        "full; `unavailable`: no service answered."
    )
    yield Sample("logins_refused", text, refused, "why", counter=True)
    publications = guard.counts.publications if guard is not None else 0
    yield _total("publications_refused", "Publications to topics that the client may not publish to.", publications)
    yield _total("origins_refused", "Requests of pages of other origins, see web.origins.", origins_refused)
    taken = {"access": broker.access.taken}
    ends = {"clients": broker.access.ends}
    if identity is not None:
        taken["links"], ends["links"] = identity.taken, identity.credentials.own.ends
    if policy is not None:
        taken["policy"] = policy.taken
    text = "0 after files were changed and could not be taken: those before are in force."
    yield Sample("reload_successful", text, {what: float(good) for what, good in taken.items()}, "what")
    text = "When the broker's own certificates end, in seconds since 1970: to clients, to other brokers."
    known = {of: end for of, end in ends.items() if end is not None}
    yield Sample("certificate_end_timestamp_seconds", text, known, "of")


def _mesh(broker: Parts) -> Iterator[Sample]:
    """Yield the samples of the other brokers and of the traffic between them."""
    node = broker.mesh.node
    members = node.port.members
    holders = dict.fromkeys(("links", "storage", "upstream"), 0.0) | dict.fromkeys(broker.holders, 1.0)
    yield Sample("publishers_held", "1 while publishers are not read because of this.", holders, "by")
    streams = node.rendezvous.publishers.streams.values()
    by_tree = sum(stream.tree is not None for stream in streams)
    modes = {"alm": float(len(streams) - by_tree), "ofm": float(by_tree)}
    yield Sample("topics_published", "Topics this broker publishes to, by how their messages leave.", modes, "mode")
    yield Sample(
        "filters",
        "Topic filters this broker has registered in the mesh.",
        len(node.rendezvous.subscriptions.registrations),
    )
    yield Sample("overlay_links", "Brokers it has overlay links to.", len(broker.watch.linked))
    yield Sample("brokers_away", "Brokers that this one considers dead, until they are forgotten.", len(members.away))
    events = {what.value: float(members.counts[what]) for what in What}
    yield Sample("broker_events", "Events of brokers that this one knows.", events, "what", counter=True)
    yield Sample(
        "clock_ahead_seconds",
        "By how much clocks of other brokers are ahead of this one's, if by more than 1 s; negative: behind.",
        node.clocks.wrong,
        "broker",
    )
    yield _total(
        "alm_messages", "Publications sent to other brokers by ALM, own and passed on.", node.delivery.multicast.sent
    )
    missed = node.delivery.multicast.missed
    yield Sample("missed_messages", "Publications kept for dead brokers.", missed.messages)
    yield Sample("missed_bytes", "Bytes that these take.", missed.bytes)
    yield _total(
        "missed_dropped",
        "Of those, publications dropped for lack of room, or as too old, before all had them.",
        missed.dropped,
    )
    yield _total("missed_damaged", "Of those, segments with a record that could not be read.", missed.damaged)
    yield _total(
        "missed_made_up", "Publications sent to brokers that had missed them.", node.delivery.catch_up.sending.made_up
    )
    yield Sample("brokers_behind", "Brokers that have missed something, or may have.", len(node.delivery.catch_up.lags))
    replicas = node.replicas
    yield Sample("session_holders", "Other brokers that have all of this one's sessions.", len(replicas.source.in_sync))
    yield Sample("session_copies_held", "Sessions of other brokers that are held here.", replicas.held)
    yield _total("sessions_adopted", "Sessions of dead brokers that have gone on here.", replicas.adopted)
    yield _total(
        "sessions_merged", "Branches of sessions here that other brokers had.", node.sessions.migrations.target.merged
    )


def _beside(broker: Parts) -> Iterator[Sample]:
    """Yield the samples of optional parts: storage, upstream and OFM."""
    if broker.store is not None:
        damaged = broker.store.quarantined
        yield Sample("storage_records_damaged", "Stored records found damaged and set aside, ever.", damaged)
        text = "Transactions of its storage that other brokers remember, and it lacks: an older copy was put back."
        yield Sample("storage_transactions_missing", text, broker.store.missing)
    if broker.upstream is not None:
        told = broker.upstream.describe()
        yield Sample("upstream_connected", "1 while the upstream is connected.", float(told["connected"]))
        yield Sample("upstream_queued", "Messages that wait for the upstream.", told["queued"])
        yield _total("upstream_dropped", "Messages for the upstream that were given up.", told["dropped"])
    if broker.ofm is not None:
        datagrams = {kind: float(number) for kind, number in broker.ofm.datapath.counts.items()}
        yield Sample("ofm_datagrams", "What happened to OFM datagrams.", datagrams, "what", counter=True)


NO_LATENCY = Histogram(LATENCY_BOUNDS, [0] * (len(LATENCY_BOUNDS) + 1), 0.0)
"""The latency of a broker that does not count topics."""
