"""Clients that send anything, cut anywhere, to a broker with passwords and rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from saps.agents.user import SubscriberAgent
from saps.frontend.mqtt.codec.encode import encode
from saps.frontend.mqtt.codec.packets import V5, V311, Connect, Publish, Subscribe, SubscribeEntry, Will
from saps.messages import Subscription
from tests.frontend.mqtt.access.guarded import GuardedBench, users

ACL = """
[[rule]]
deny = "both"
topics = "secret/#"
[[rule]]
allow = "both"
users = "ann"
topics = ["#", "own/%c"]
"""

topics = st.sampled_from(["a", "secret", "secret/a", "own/c", "own/d"])
wills = st.none() | topics.map(lambda topic: Will(topic, b"x"))
connects = st.builds(
    lambda user, word, version, will: encode(
        Connect("c", version=version, username=user, password=word, will=will), version
    ),
    st.sampled_from(["ann", "eve"]),
    st.sampled_from([b"secret", b"guess"]),
    st.sampled_from([V311, V5]),
    wills,
)
others = st.one_of(
    st.builds(lambda t, q: encode(Publish(t, b"x", q, packet_id=q or None), V311), topics, st.integers(0, 2)),
    st.builds(lambda t: encode(Subscribe(1, [SubscribeEntry(t)]), V311), topics | st.just("#")),
    st.binary(max_size=12),
    st.just(b"\xc0\0"),
)
steps = st.lists(st.none() | connects | others, max_size=12)


@given(steps, st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_nothing_but_the_right_password_opens_a_session_and_nothing_forbidden_gets_through(
    sent: list[bytes | None], cuts: list[int]
) -> None:
    """None: the passwords that wait are checked now."""
    bench = GuardedBench(users(ann=b"secret"), ACL)
    seen: list[str] = []
    SubscriberAgent(bench.hub, "watcher", lambda message: seen.append(message.topic)).subscribe(Subscription("#", 2))
    client = bench.arriving()
    client.write = lambda data: None  # type: ignore[method-assign]
    stream = b""
    for step in sent:
        if step is None:
            bench.check_passwords()
            continue
        stream += step
        for cut in cuts:
            if stream and not client.connection.closing:
                client.send_bytes(stream[:cut])
                stream = stream[cut:]
    bench.check_passwords()
    session = client.connection.session
    if session is not None:
        assert session.user == "ann"
        assert session.rights is not None
    elif not bench.frontend.sessions:
        assert seen == []
    client.lose()
    assert not any(topic.startswith("secret") for topic in seen)
    assert not any(topic.startswith("secret") for topic in bench.hub.routes.known)
