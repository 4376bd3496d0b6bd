"""Policy files, XML and TOML: the same words, every fault with its place, and nothing that expands."""

from __future__ import annotations

import logging
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saps.config.knobs import SettingError
from saps.frontend.mqtt.access.faults import FileError
from saps.policy.files_io import PolicyFiles
from saps.policy.model import Policy, Verdict
from saps.policy.toml_file import parse_toml
from saps.policy.xml_file import parse_xml

XML = """<?xml version="1.0"?>
<strategy version="3">
  <topic name="city">
    <topic name="health"> <forbid cluster="osaka"/> <forbid broker="b7"/> </topic>
    <forbid cluster="kobe/port"/>
  </topic>
  <cluster name="osaka/ward1"> <switch dpid="0000000000000003"/> </cluster>
  <cluster name="kobe"/>
</strategy>
"""
TOML = """version = 3
[[policy]]
topic = "city/health"
clusters = ["osaka"]
brokers = ["b7"]
[[policy]]
topic = "city"
clusters = ["kobe/port"]
[clusters]
"osaka/ward1" = ["0000000000000003"]
kobe = []
"""


def test_both_formats_say_the_same() -> None:
    wanted = Policy(
        3,
        {
            "city/health": Verdict(frozenset({"osaka"}), frozenset({"b7"})),
            "city": Verdict(frozenset({"kobe/port"}), frozenset()),
        },
        {"osaka/ward1": frozenset({3}), "kobe": frozenset()},
    )
    assert parse_xml(XML) == wanted
    assert parse_toml(TOML) == wanted


LEVEL = st.text("ab é<>&'\"中", min_size=1, max_size=4)
LABEL = st.sampled_from(["osaka", "b7", "x.y", "k-1"])


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.lists(LEVEL, min_size=1, max_size=3).map("/".join),
        st.tuples(st.frozensets(LABEL, min_size=1), st.frozensets(LABEL)),
    )
)
def test_what_is_written_is_read(said: dict[str, tuple[frozenset[str], frozenset[str]]]) -> None:
    text = "<strategy version='1'>"
    for topic, (clusters, brokers) in said.items():
        levels = topic.split("/")
        text += "".join(f"<topic name={quoteattr(level)}>" for level in levels)
        text += "".join(f'<forbid cluster="{name}"/>' for name in clusters)
        text += "".join(f'<forbid broker="{name}"/>' for name in brokers) + "</topic>" * len(levels)
    assert parse_xml(text + "</strategy>").topics == {topic: Verdict(*both) for topic, both in said.items()}


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ('<strategy version="1">\n<topic name="a/+"/></strategy>', ["line 2: topic 'a/+': a topic name must not "
         "contain the wildcards + or #"]),
        ('<strategy version="1"><forbid cluster="x"/></strategy>', ["line 1: <forbid>: not expected in <strategy>"]),
        ('<strategy version="0"/>', ["line 1: version must be a whole number from 1, not 0"]),
        ("<strategy/>", ["line 1: <strategy>: needs version"]),
        ('<strategy version="1"><topic name="a">\n<forbid/></topic></strategy>', ["line 2: <forbid>: needs cluster or "
         "broker"]),
        ('<strategy version="1"><topic name="a">\n<forbid cluster="x" broker="y"/></topic></strategy>',
         ["line 2: <forbid>: one of cluster and broker"]),
        ('<strategy version="1"><topic nam="a">\n</topic></strategy>', ["line 1: <topic>: attribute 'nam' is not "
         "known; known are name"]),
        ('<strategy version="1">\n<topic name="a"></strategy>', ["line 2: not valid XML: mismatched tag"]),
        ('<strategy version="1">\nforbid all</strategy>', ["line 2: <strategy>: text is not expected here: "
         "'forbid all'"]),
        ('<policy version="1"/>', ["line 1: <policy>: not expected here: begin with <strategy>"]),
        ('<strategy version="1"><cluster name="x"><switch dpid="3"/></cluster></strategy>',
         ["line 1: switch '3' must be 16 hexadecimal digits"]),
        ("", ["line 1: not valid XML: no element found"]),
    ],
)  # fmt: skip
def test_a_fault_in_xml_is_told_with_line_and_element(text: str, faults: list[str]) -> None:
    with pytest.raises(FileError) as error:
        parse_xml(text)
    assert list(map(str, error.value.faults)) == faults


BOMB = """<?xml version="1.0"?>
<!DOCTYPE strategy [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;">]>
<strategy version="1"><topic name="&c;"/></strategy>"""
OUTSIDE = """<!DOCTYPE strategy [<!ENTITY x SYSTEM "file:///etc/hostname">]>
<strategy version="1"><topic name="a">&x;</topic></strategy>"""


@pytest.mark.parametrize(("text", "line"), [(BOMB, 2), (OUTSIDE, 1), ("<!DOCTYPE strategy>\n<strategy/>", 1)])
def test_entities_are_refused_before_anything_is_read(text: str, line: int) -> None:
    with pytest.raises(FileError) as error:
        parse_xml(text)
    assert list(map(str, error.value.faults)) == [
        f"line {line}: <!DOCTYPE>: a document type, and so entities, are not read"
    ]


def test_elements_too_deep_and_files_too_long_are_refused() -> None:
    with pytest.raises(FileError, match="more than 64 elements inside each other"):
        parse_xml('<strategy version="1">' + '<topic name="a">' * 5000)
    with pytest.raises(FileError, match="longer than 1048576 bytes"):
        parse_xml(" " * (1 << 21))


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("version = 1\n[[policy]]\ntopic = 'a'\nclusters = [\n  'x',\n  'y z',\n]", ["line 6: cluster 'y z': level "
         "'y z' must be 1 to 63 letters, digits, '.', '_' or '-' (tokyo/ward1)"]),
        ("version = 1\n[[policy]]\ncluster = ['x']", ["line 2: topic is missing",
         "line 3: 'cluster' is not known here; known are topic, clusters, brokers"]),
        ("version = 1\n[[policy]]\ntopic = 'a'", ["line 3: nothing is forbidden: clusters and brokers are missing"]),
        ("[[policy]]\ntopic = 'a'\nbrokers = []", ["line 1: the version is missing: a whole number from 1, to be "
         "raised with each change"]),
        ("version = true", ["line 1: version must be a whole number from 1, not True"]),
        ("version = 1\n[clusters]\nx = ['0000000000000001']\ny = ['0000000000000001']",
         ["line 4: switch 0000000000000001 is in cluster x already"]),
        ("version = 1\npolicy = 3", ["line 2: policy must be written as tables: begin each with [[policy]]"]),
        ("version = 1\nx", ["line 2: not valid TOML: Expected '=' after a key in a key/value pair "
         "(at end of document)"]),
    ],
)  # fmt: skip
def test_a_fault_in_toml_is_told_with_its_line(text: str, faults: list[str]) -> None:
    with pytest.raises(FileError) as error:
        parse_toml(text)
    assert list(map(str, error.value.faults)) == faults


@settings(max_examples=50)
@given(st.text() | st.text('<>="/ topicnamefrbd!&;[]\n').map(lambda text: "<strategy version='1'>" + text))
def test_any_text_is_a_policy_or_a_fault(text: str) -> None:
    for parse in (parse_xml, parse_toml):
        found: Policy | FileError
        try:
            found = parse(text)
        except FileError as error:
            found = error
        if isinstance(found, FileError):
            assert found.faults
            assert all(fault.line >= 1 for fault in found.faults)
        else:
            assert found.version >= 1


def test_files_add_up_and_are_read_again_as_a_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    xml, toml = tmp_path / "city.xml", tmp_path / "state.toml"
    xml.write_text(XML)
    toml.write_text("version = 5\n[[policy]]\ntopic = 'city/health'\nbrokers = ['b8']\n")
    obeyed: list[Policy] = []
    files = PolicyFiles("policy.file", [str(xml), str(toml)], obeyed.append)
    assert obeyed[-1].version == 8
    assert obeyed[-1].verdict("city/health/beds").brokers == {"b7", "b8"}

    assert files.reload(), "nothing has changed"
    xml.write_text(XML.replace('version="3"', 'version="4"').replace("b7", "b9"))
    toml.write_text("version = 5\n[[policy]]\ntopic = 'city/health'\nbrokers = ['b8', 'b1']\n")
    with caplog.at_level(logging.ERROR):
        assert not files.reload(), "one of the two has kept its version"
    assert f"{toml}: its content has changed, but version 5 is not above 5" in caplog.text
    assert files.policy == obeyed[-1]
    assert len(obeyed) == 1

    toml.write_text(toml.read_text().replace("version = 5", "version = 6"))
    assert files.reload()
    assert obeyed[-1].version == 10
    assert obeyed[-1].verdict("city/health").brokers == {"b9", "b8", "b1"}


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    file = tmp_path / "p.xml"
    with pytest.raises(SettingError, match=r"cannot read .*p.xml: No such file"):
        PolicyFiles("policy.file", [file], lambda policy: None)
    file.write_text("<strategy version='1'>\n<topic/></strategy>")
    with pytest.raises(SettingError) as error:
        PolicyFiles("policy.file", [file], lambda policy: None)
    assert str(error.value) == f"policy.file: {file}:2: <topic>: needs name"
    file.write_bytes(b"<a>\n\xff</a>")
    with pytest.raises(SettingError, match=r"p.xml:2: not UTF-8"):
        PolicyFiles("policy.file", [file], lambda policy: None)
