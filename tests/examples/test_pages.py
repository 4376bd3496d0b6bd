"""The examples' pages against their code: what they name is there, and nothing is left out."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.air_quality.__main__ import parser as air_quality
from examples.parking.__main__ import parser as parking
from examples.replay.__main__ import parser as replay
from examples.social_feed.__main__ import parser as social_feed
from examples.traffic_lights.__main__ import parser as traffic_lights

EXAMPLES = Path(__file__).parents[2] / "examples"
PARSERS = {
    "air_quality": air_quality,
    "parking": parking,
    "replay": replay,
    "social_feed": social_feed,
    "traffic_lights": traffic_lights,
}
OTHERS = {"--external", "--decide"}
"""Options of other commands that pages name."""


@pytest.mark.parametrize(("name", "parser"), PARSERS.items())
def test_a_page_names_every_module_and_only_options_that_there_are(
    name: str, parser: Callable[[], argparse.ArgumentParser]
) -> None:
    folder = EXAMPLES / name
    page = (folder / "README.md").read_text()
    modules = {path.name for path in folder.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert modules <= set(re.findall(r"^\| `(\w+\.py)` \|", page, re.MULTILINE))
    assert set(re.findall(r"`(\w+\.py)`", page)) <= modules | {"__main__.py"}
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", page)) - OTHERS
    assert options <= set(parser()._option_string_actions)
    assert {"--seconds", "--seed", "--json", "--picture", "--plain"} <= set(parser()._option_string_actions)
    for target in re.findall(r"\]\(([^)#]+)", page):
        assert (folder / target).exists(), target
    assert f"({name}/README.md)" in (EXAMPLES / "README.md").read_text()


@pytest.mark.parametrize("parser", PARSERS.values())
@pytest.mark.parametrize(
    "bad", [["--seconds", "0"], ["--seconds", "nan"], ["--nothing"], ["--json", "no/folder/x"], ["--picture", "."]]
)
def test_bad_arguments_are_refused(
    parser: Callable[[], argparse.ArgumentParser], bad: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(bad)
    assert caught.value.code == 2
    assert bad[0] in capsys.readouterr().err
