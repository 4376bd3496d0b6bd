"""Names in certificates: written and read, and who may say to be whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.config.settings import cluster_fault, name_fault
from saps.identity.names import Identity, identity_in
from saps.identity.verdict import Presented, Serial, claim_fault, standing_fault

labels = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)
clusters = st.lists(labels, min_size=1, max_size=8).map("/".join)
identities = st.builds(Identity, clusters, labels)


@given(identities)
def test_every_name_that_settings_allow_stands_in_a_certificate_and_is_read_back(identity: Identity) -> None:
    assert cluster_fault(identity.cluster) is None
    assert name_fault(identity.broker) is None
    assert identity_in(identity.uri) == identity


@given(st.text(max_size=20) | st.from_regex(r"saps://mesh/[a-z/.\n:%]{0,20}", fullmatch=True))
def test_a_uri_is_no_name_unless_it_is_exactly_one(uri: str) -> None:
    found = identity_in(uri)
    assert found is None or found.uri == uri


@pytest.mark.parametrize(
    "identity", [Identity("c", "a/b"), Identity("", "b"), Identity("c", ""), Identity("c/", "b"), Identity("c", "b\n")]
)
def test_what_cannot_be_read_back_is_not_written(identity: Identity) -> None:
    with pytest.raises(ValueError, match="cannot stand in a certificate"):
        _ = identity.uri


@given(st.lists(identities, max_size=3), identities)
def test_one_may_be_whom_the_certificate_names_and_nobody_else(names: list[Identity], wanted: Identity) -> None:
    shown = Presented(tuple(names), Serial(b"", 1), 0, 1)
    assert (claim_fault(shown, wanted.broker, wanted.cluster) is None) == (wanted in names)


@pytest.mark.parametrize(
    ("now", "grace", "fault"),
    [(99, 0, "not valid yet"), (99, 1, None), (100, 0, None), (199, 0, None), (200, 0, "expired"), (204, 5, None)],
)
def test_a_certificate_holds_from_its_beginning_to_its_end_and_a_grace(now: int, grace: int, fault: str | None) -> None:
    shown = Presented((), Serial(b"", 1), 100, 200)
    said = standing_fault(shown, frozenset(), now, grace)
    assert said is None if fault is None else fault in str(said)


def test_a_revoked_certificate_never_holds() -> None:
    shown = Presented((), Serial(b"ca", 1), 100, 200)
    assert standing_fault(shown, {Serial(b"ca", 1)}, 150, 1e9) is not None
    assert standing_fault(shown, {Serial(b"other", 1), Serial(b"ca", 2)}, 150) is None
