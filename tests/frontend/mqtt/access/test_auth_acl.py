"""The decision of an ACL against the definition, read aloud: the first rule that fits decides."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.access.acl import CACHED_TOPICS, Rights
from saps.frontend.mqtt.access.acl_file import parse_acl
from saps.frontend.mqtt.access.faults import FileError
from saps.topics import filter_fault, matches

NAMES = ("ann", "bob", "a", "100%")
TOPICS = [
    *("a", "b", "a/b", "a/ann", "a/bob", "ann", "b/a/ann", "$SYS/a", "$SYS", "a/100%"),
    *("a/b/c", "x-ann/b", "a/", "/a"),
]


@dataclass
class NaiveRule:
    effect: str
    action: str
    topics: list[str]
    users: list[str] | None
    anonymous: bool
    clients: list[str] | None

    def toml(self) -> str:
        lines = ["[[rule]]", f'{self.effect} = "{self.action}"', f"topics = {self.topics!r}"]
        if self.users is not None:
            lines.append(f"users = {self.users!r}")
        if self.clients is not None:
            lines.append(f"clients = {self.clients!r}")
        return "\n".join([*lines, *(["anonymous = true"] if self.anonymous else [])]) + "\n"

    def fits(self, user: str | None, client: str, action: str, topic: str) -> bool:
        def filled(pattern: str) -> str | None:
            if "%u" in pattern and user is None:
                return None
            return pattern.replace("%u", user or "").replace("%c", client)

        if action != self.action and self.action != "both":
            return False
        if self.anonymous and user is not None:
            return False
        if self.users is not None and (user is None or not any(fnmatchcase(user, p) for p in self.users)):
            return False
        if self.clients is not None and not any(
            (p := filled(pattern)) is not None and fnmatchcase(client, p) for pattern in self.clients
        ):
            return False
        return any((p := filled(pattern)) is not None and matches(p, topic) for pattern in self.topics)


@dataclass
class NaiveAcl:
    default: str
    rules: list[NaiveRule]

    def allows(self, user: str | None, client: str, action: str, topic: str) -> bool:
        for rule in self.rules:
            if rule.fits(user, client, action, topic):
                return rule.effect == "allow"
        return self.default == "allow"

    def rights(self, user: str | None, client: str) -> Rights:
        text = f'default = "{self.default}"\n' + "".join(rule.toml() for rule in self.rules)
        return parse_acl(text).rights(user, client)


level = st.sampled_from(("a", "b", "+", "#", "%u", "%c", "x-%u", "$SYS"))
filters = st.lists(level, min_size=1, max_size=3).map("/".join).filter(lambda text: filter_fault(text) is None)
some_filters = st.lists(filters, min_size=1, max_size=3)
name_patterns = st.none() | st.lists(st.sampled_from(("ann", "bob", "a*", "*b", "*", "*n*")), min_size=1, max_size=2)
client_patterns = st.none() | st.lists(st.sampled_from(("a", "%u", "%u*", "*", "b*")), min_size=1, max_size=2)
rules = st.builds(
    lambda effect, action, topics, users, anonymous, clients: NaiveRule(
        effect, action, topics, None if anonymous else users, anonymous, clients
    ),
    st.sampled_from(("allow", "deny")),
    st.sampled_from(("publish", "subscribe", "both")),
    some_filters,
    name_patterns,
    st.booleans(),
    client_patterns,
)
acls = st.builds(NaiveAcl, st.sampled_from(("allow", "deny")), st.lists(rules, max_size=6))
users = st.none() | st.sampled_from(NAMES)


@given(acls, users, st.sampled_from(NAMES), st.lists(st.sampled_from(TOPICS), min_size=1))
def test_every_decision_is_that_of_the_first_rule_that_fits(
    acl: NaiveAcl, user: str | None, client: str, asked: list[str]
) -> None:
    rights = acl.rights(user, client)
    for topic in [*asked, *asked]:  # the second time from the cache
        assert rights.may_publish(topic) == acl.allows(user, client, "publish", topic)
        assert rights.may_read(topic) == acl.allows(user, client, "subscribe", topic)
        assert rights.may_subscribe(topic) == rights.may_read(topic)
    assert rights.publishable == {t for t in asked if acl.allows(user, client, "publish", t)}


@given(acls, users, st.sampled_from(NAMES), filters.filter(lambda text: "%" not in text))
def test_no_filter_with_a_readable_topic_is_refused(
    acl: NaiveAcl, user: str | None, client: str, topic_filter: str
) -> None:
    rights = acl.rights(user, client)
    readable = [t for t in TOPICS if matches(topic_filter, t) and acl.allows(user, client, "subscribe", t)]
    assert rights.may_subscribe(topic_filter) or not readable


def test_a_filter_that_one_rule_denies_entirely_is_refused() -> None:
    rights = parse_acl(
        """
        [[rule]]
        deny = "subscribe"
        topics = "plant/secret/#"
        [[rule]]
        allow = "subscribe"
        topics = "plant/#"
        """
    ).rights("ann", "c")
    assert not rights.may_subscribe("plant/secret/+")
    assert not rights.may_subscribe("plant/secret/#")
    assert not rights.may_subscribe("other/#")
    assert rights.may_subscribe("plant/#")
    assert rights.may_subscribe("#")
    assert rights.may_read("plant/a")
    assert not rights.may_read("plant/secret/a")


def test_clients_with_the_same_rights_share_their_decisions_and_others_do_not() -> None:
    policy = parse_acl(
        """
        [[rule]]
        allow = "publish"
        users = "ann"
        topics = "own/%c"
        [[rule]]
        allow = "subscribe"
        topics = "news"
        """
    )
    assert policy.rights("bob", "c1") is policy.rights(None, "c2")
    one, other = policy.rights("ann", "c1"), policy.rights("ann", "c2")
    assert one is not other
    assert one.may_publish("own/c1")
    assert not other.may_publish("own/c1")


def test_the_cache_is_bounded_and_stays_right() -> None:
    rights = parse_acl('[[rule]]\nallow = "both"\ntopics = "even/#"').rights(None, "c")
    for number in range(3 * CACHED_TOPICS):
        topic = f"{'odd' if number % 2 else 'even'}/{number}"
        assert rights.may_publish(topic) == rights.may_read(topic) == (number % 2 == 0)
        assert len(rights.publishable) <= CACHED_TOPICS
        assert len(rights._publish) <= CACHED_TOPICS
        assert len(rights._read) <= CACHED_TOPICS


FAULTS = [
    ("default = 'maybe'", ["line 1: default must be 'deny' or 'allow', not 'maybe'"]),
    ("x = ", ["line 1: not valid TOML: Invalid value (at end of document)"]),
    ("\n\nrule = 7", ["line 3: rule must be written as tables: begin each with [[rule]]"]),
    ("[rule]\nallow = 'both'", ["line 1: rule must be written as tables: begin each with [[rule]]"]),
    ("roles = 'all'", ["line 1: roles must be a table: begin it with [roles]"]),
    ("[roles]\noperater = 'x'", ["line 2: 'operater' is not known here; did you mean operator?"]),
    (
        "[roles]\nviewer = [\n'x',\n'']",
        ["line 4: viewer: '' matches nobody: write a name, or a pattern such as 'ward-*'"],
    ),
    ("[roles]\nviewer = 3", ["line 2: viewer must be a text or a list of texts, not 3"]),
    ("\ndefualt = 'deny'", ["line 2: 'defualt' is not known here; did you mean default?"]),
    (
        "# one\n[[rule]]\nallow = 'both'\ntopics = 'a'\n\n[[rule]]\nallow = 'read'\ntopics = 'a'",
        ["line 7: allow must be 'publish' or 'subscribe' or 'both', not 'read'"],
    ),
    (
        "[[rule]]\ntopics = 'a'",
        ["line 1: a rule needs one of them, and this one has neither allow nor deny"],
    ),
    (
        "[[rule]]\nallow = 'both'\ndeny = 'both'\ntopics = 'a'",
        ["line 1: a rule needs one of them, and this one has both allow and deny"],
    ),
    ("[[rule]]\nallow = 'both'", ["line 1: topics are missing: a topic filter, or a list of them"]),
    ("[[rule]]\nallow = 'both'\ntopics = []", ["line 3: topics must be a text or a list of texts, not []"]),
    (
        '[[rule]]\nallow = "both"\ntopics = [\n  "a",  # "b",\n  "c/#/d",\n\n  5, "%x" ]\n',
        [
            "line 5: topics: 'c/#/d' is not a topic filter: # must stand alone as the last level",
            "line 7: topics must be texts, not 5",
            "line 7: topics: '%x' in '%x': only %u (user), %c (client identifier) and %% are known",
        ],
    ),
    (
        'rule = [\n  { allow = "both", topics = "a" },\n  { alow = "both", topics = "$share/g/a" },\n]',
        [
            "line 3: 'alow' is not known here; did you mean allow?",
            "line 3: a rule needs one of them, and this one has neither allow nor deny",
            "line 3: topics: '$share/g/a': leave out $share and the group; a filter holds for every group",
        ],
    ),
    (
        '[[rule]]\nallow = "both"\ntopics = "a"\nusers = ["ann"]\nanonymous = true\n',
        ["line 5: an anonymous client has no user: give users or anonymous"],
    ),
    (
        '[[rule]]\nallow = "both"\ntopics = "a"\nanonymous = false\nusers = ["", "%u"]',
        [
            "line 4: anonymous can only be true, not False: leave it out",
            "line 4: an anonymous client has no user: give users or anonymous",
            "line 5: users: '' matches nobody: write a name, or a pattern such as 'ward-*'",
            "line 5: users: '%u': %u is the user itself",
        ],
    ),
    (
        '[[rule]]\nallow = "both"\ntopics = """a\n[[rule]]\nb = 1"""\nclients = 5\n[[rule]]\ndeny = "x"\ntopics="a"',
        [
            "line 6: clients must be a text or a list of texts, not 5",
            "line 8: deny must be 'publish' or 'subscribe' or 'both', not 'x'",
        ],
    ),
]


@pytest.mark.parametrize(("text", "faults"), FAULTS)
def test_every_fault_is_told_with_its_line_and_reason(text: str, faults: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        parse_acl(text)
    assert str(caught.value).split("; line ") == [
        fault if n == 0 else fault.removeprefix("line ") for n, fault in enumerate(faults)
    ]


def said(text: str) -> str:
    """The faults of a text; empty if it has none."""
    try:
        parse_acl(text)
    except FileError as error:
        return str(error)
    return ""


@given(st.text(max_size=80))
def test_no_text_makes_parsing_fail_otherwise(text: str) -> None:
    assert said(text) == "" or said(text).startswith("line ")


@given(st.recursive(st.integers() | st.text(max_size=5) | st.booleans(), lambda inner: st.lists(inner, max_size=3)))
def test_no_value_makes_parsing_fail_otherwise(value: object) -> None:
    text = json.dumps(value, ensure_ascii=True)
    for line in (f"default = {text}", f"rule = {text}", *(f"[[rule]]\n{key} = {text}" for key in ("allow", "topics"))):
        assert said(line) == "" or said(line).startswith("line ")
