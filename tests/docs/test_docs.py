"""The documents against the code: what they name exists, the protocol's specification is complete, examples run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from saps.config.settings import OverlaySettings
from saps.config.sources_io import KNOBS
from saps.messages import Properties
from saps.overlay.frames.calls import Body, Result
from saps.overlay.frames.framing import MAX_FRAME, VERSION, Hello, encode_into
from saps.overlay.frames.kinds import AnyFrame
from saps.overlay.ring.keys import BrokerRef, Key, Ref
from tests.batches import frame as publication

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder, pattern in ((ROOT, "*.md"), (ROOT / "docs", "**/*.md"), (ROOT / "examples", "*.md"))
    for path in folder.glob(pattern)
)

WORDS = 60_000
"""In README, CONTRIBUTING, CHANGELOG and docs, tables and generated sections included. The bars of tables and other
signs without a letter or digit are none, though `wc -w` counts them (a sixth of what it counts here)."""

UNWRAPPED = {"CHANGELOG.md", "docs/performance.md"}
"""Pages with lines of any width."""

PROTOCOL = (ROOT / "docs" / "wire-protocol.md").read_text()
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text()


def rows(page: str) -> Iterator[list[str]]:
    """The cells of all table rows of a page."""
    for line in page.splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def names(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`(\w+)`", cell))


def tagged(struct: Any) -> tuple[int, str, tuple[str, ...]]:
    return struct.__struct_config__.tag, struct.__name__, struct.__struct_fields__


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# --- the wire protocol ------------------------------------------------------------------------------------


def test_every_frame_body_and_result_is_in_the_specification_with_its_tag_and_fields() -> None:
    specified = sorted((int(row[0]), *map(names, row[1:3])) for row in rows(PROTOCOL) if row[0].isdigit())
    structs = [*get_args(AnyFrame), *get_args(Body), *get_args(Result)]
    assert specified == sorted((tag, (name,), fields) for tag, name, fields in map(tagged, structs))


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        (Hello, Hello.__struct_fields__),
        (BrokerRef, BrokerRef.__struct_fields__),
        (Key, Key._fields),
        (Ref, Ref._fields),
    ],
)
def test_the_common_values_are_specified_field_by_field(value: type, fields: tuple[str, ...]) -> None:
    assert [names(row[1]) for row in rows(PROTOCOL) if row[0] == f"`{value.__name__}`"] == [fields]


def test_the_specification_names_each_property_of_a_message_in_order() -> None:
    (item,) = re.findall(r"^- `properties` are .*?\.$", PROTOCOL, re.MULTILINE | re.DOTALL)
    said = [" ".join(name.split()) for name in item.partition("nil:")[2].rstrip(".").split(",")]
    assert said == [
        "user properties" if field == "user" else field.replace("_", " ") for field in Properties.__struct_fields__
    ]


def test_the_example_of_the_specification_is_what_is_sent() -> None:
    (example,) = re.findall(r"^    (00 00 [0-9a-f ]+)$", PROTOCOL, re.MULTILINE)
    sent = bytearray()
    encode_into(sent, publication("a/b", 7, 6, b"x", 0, origin=1))
    assert bytes.fromhex(example) == bytes(sent)


def test_the_specification_is_of_the_version_spoken() -> None:
    assert PROTOCOL.startswith(f"# The protocol between brokers, version {VERSION}\n")
    assert f"{MAX_FRAME:,} bytes" in PROTOCOL


# --- guarantees -------------------------------------------------------------------------------------------


def test_recovery_times_are_those_of_the_default_settings() -> None:
    overlay = OverlaySettings()
    beat, dead, suspect = overlay.heartbeat_interval, overlay.dead_after, overlay.suspect_after
    assert f"| `dead_after` | {dead} |" in GUARANTEES
    assert f"| {suspect} + {beat} = {suspect + beat} |" in GUARANTEES
    assert f"about {dead + 2 * beat + 0.5:.1f} s after a kill" in " ".join(GUARANTEES.split())


def test_every_guarantee_names_what_shows_it() -> None:
    guaranteed = GUARANTEES.partition("## Guaranteed")[2].partition("\n## ")[0]
    lines = [row for row in rows(guaranteed) if row[0].startswith("**")]
    assert len(lines) > 8
    for what, shown_by in lines:
        assert re.search(r"`tests/[\w./]+`", shown_by), what


# --- all pages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)]+)\)", path.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(file.read_text()), f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_files_and_modules_that_are_named_exist(page: str) -> None:
    text = (ROOT / page).read_text().partition("## Later work")[0]
    for name in re.findall(r"`((?:tests|benchmarks|docs|scripts|examples|saps)/[\w./-]*)`", text):
        assert (ROOT / name).exists(), f"{page}: {name}"
    for name in re.findall(r"`(saps\.[a-z_.]+)`", text):
        file = ROOT / name.replace(".", "/")
        assert name == "saps.toml" or file.with_suffix(".py").exists() or file.is_dir(), f"{page}: {name}"


@pytest.mark.parametrize("page", PAGES)
def test_settings_that_are_named_exist(page: str) -> None:
    groups = {name.partition(".")[0] for name in KNOBS if "." in name}
    assert "overlay" in groups
    for name in re.findall(rf"`((?:{'|'.join(groups)})\.\w+)`", (ROOT / page).read_text()):
        assert name in KNOBS, f"{page}: {name}"


@pytest.mark.parametrize("page", [page for page in PAGES if page not in UNWRAPPED])
def test_prose_is_wrapped_at_120_columns(page: str) -> None:
    """Tables, code, headings and pictures stay on their lines."""
    prose = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    wide = [line for line in prose.splitlines() if len(line) > 120 and not line.startswith(("|", "    ", "#", "!["))]
    assert wide == []


def test_the_documents_have_no_more_words() -> None:
    """The limit falls when pages shrink; whoever adds a page removes words elsewhere."""
    counted = [page for page in PAGES if not page.startswith("examples/")]
    words = [word for page in counted for word in (ROOT / page).read_text().split() if re.search("[A-Za-z0-9]", word)]
    assert len(words) <= WORDS


def test_every_decision_is_numbered_once_and_says_when_to_undo_it() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [path.name[:3] for path in decisions]
    assert len(set(numbers)) == len(numbers)
    for path in decisions:
        text = path.read_text()
        assert text.startswith(f"# {path.name[:3]} "), path.name
        for heading in ("## Choice", "## Why", "## Price", "## Undo when"):
            assert heading in text, f"{path.name}: {heading}"


def test_the_scene_of_the_simulator_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "simulator.md").read_text()
    block = page.partition("## A scene")[2].partition("A test runs")[0]
    code = "\n".join(line[4:] for line in block.splitlines() if line.startswith("    ") or not line)
    exec(compile(code, "docs/simulator.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "Reached(brokers=1, subscribers=1)" in printed
    assert "payload=b'21.5'" in printed


def test_the_program_of_the_embedding_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "embedding.md").read_text()
    block = page.partition("## Two brokers")[2].partition("It prints ")[0]
    code = "\n".join(line[4:] for line in block.splitlines() if line.startswith("    ") or not line)
    exec(compile(code, "docs/embedding.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["Reached(brokers=1, subscribers=1)", "air/ward1 b'21.5'"]
    assert all(f"`{line}`" in page for line in printed)


@pytest.mark.parametrize("script", ["reference_pages", "metrics_page", "man_page"])
def test_what_the_code_says_itself_is_in_the_pages_as_it_says_it(script: str) -> None:
    command = [sys.executable, f"scripts/{script}.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
