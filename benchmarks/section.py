"""Generated sections of a Markdown page, between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
"""Where the benchmarks write what they have measured."""


def replace_section(page: str, name: str, body: str) -> str:
    """`page` with the section `name` replaced, or added at the end if it has none."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    section = f"{begin}\n\n{body.strip()}\n\n{end}"
    head, found, rest = page.partition(begin)
    if not found:
        return f"{page.rstrip()}\n\n{section}\n".lstrip()
    _, closed, tail = rest.partition(end)
    if not closed:
        raise ValueError(f"the page has {begin} without {end}")
    return head + section + tail


def update_page(path: Path, name: str, body: str) -> None:
    """Replace or add the section in the file, which is made if it is missing."""
    page = path.read_text() if path.exists() else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(replace_section(page, name, body))
