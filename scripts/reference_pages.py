"""Writes generated sections into docs/architecture.md, concepts.md and embedding.md, between their markers.

Usage: python scripts/reference_pages.py [--check]. With --check it writes nothing; exit status 1 if it would.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import saps
from saps.overlay.delivery.tree import by_place, divide
from saps.overlay.ring.keys import BrokerRef, KeyOrder

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BEGIN = "<!-- written by scripts/reference_pages.py -->\n"
END = "<!-- end -->"
PUBLISHER = BrokerRef("b1", 1, "", "tokyo/ward1")
MEMBERS = [
    BrokerRef(f"b{number}", 1, "", cluster)
    for number, cluster in enumerate(
        ["tokyo/ward1", "tokyo/ward2", "tokyo/ward2", "osaka/kita", "osaka/kita", "osaka/kita", "osaka/minami"], 2
    )
]
LEVELS = 2
"""Names of packages in the architecture page have at most so many parts."""
GIVEN = (saps.Messages,)
"""Classes whose objects are made by others."""
ORDERS = {
    KeyOrder.ALM: "`--alm plain` (the paper's ALM): sorted by a hash, blind to place",
    KeyOrder.ALM_LA: "`--alm la` (the paper's ALM-LA): sorted by cluster",
    KeyOrder.CLUSTER: "`--alm cluster`, the default: sorted by cluster, and no site is entered twice",
}


def api() -> str:
    """The public names of the package, with signatures and contracts."""
    return "".join(f"\n### `{name}`\n\n{_described(getattr(saps, name))}" for name in saps.__all__ if name[0] != "_")


def _described(thing: Any) -> str:
    made = not issubclass(thing, (BaseException, *GIVEN))
    parts = [f"    {_signature(thing)}\n\n" if made else "", _text(thing)]
    for name, member in vars(thing).items():
        if name.startswith("_") and not (made and name == "__init__"):
            continue
        if isinstance(member, property):
            parts.append(_filled(f"\n**`{name}`**: {_text(member)}"))
        elif callable(member) and member.__doc__:
            shown = "" if name == "__init__" else f"**`{_signature(member, name)}`**: "
            parts.append(_filled(f"\n{shown}{_text(member)}"))
    return "".join(parts)


def _signature(thing: Any, name: str = "") -> str:
    parameters = list(inspect.signature(thing).parameters.values())
    if parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    shown = ", ".join(f"{each}" for each in _with_marks(parameters))
    waits = "await " if inspect.iscoroutinefunction(thing) else ""
    return f"{waits}{name or f'saps.{thing.__name__}'}({shown})"


def _with_marks(parameters: list[inspect.Parameter]) -> Iterator[str]:
    marked = False
    for each in parameters:
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not marked:
            marked = True
            yield "*"
        default = "" if each.default is inspect.Parameter.empty else f"={each.default!r}"
        yield f"{each.name}{default}"


def _text(thing: Any) -> str:
    text = inspect.cleandoc(thing.__doc__ or "").replace("``", "`")
    return f"{text}\n"


def _filled(text: str) -> str:
    """The first paragraph, lengthened by what stands before it, in lines of 120 characters."""
    first, blank, rest = text.strip().partition("\n\n")
    return "\n" + textwrap.fill(first, 120, break_on_hyphens=False, break_long_words=False) + blank + rest + "\n"


def trees() -> str:
    """How one publication reaches its members, by each key order."""
    return "".join(
        f"\n{text}: {_crossings(order)} of {len(MEMBERS)} messages go to another cluster.\n\n"
        f"```mermaid\n{_diagram(order)}```\n"
        for order, text in ORDERS.items()
    )


def _hops(holder: BrokerRef, members: list[BrokerRef], order: KeyOrder) -> Iterator[tuple[BrokerRef, BrokerRef]]:
    for branch in divide(holder, members, order):
        yield holder, branch.child
        yield from _hops(branch.child, list(branch.slice), order)


def _crossings(order: KeyOrder) -> int:
    hops = _hops(PUBLISHER, by_place(MEMBERS, order), order)
    return sum(source.cluster != target.cluster for source, target in hops)


def _diagram(order: KeyOrder) -> str:
    lines = ["graph LR"]
    for cluster in dict.fromkeys(ref.cluster for ref in (PUBLISHER, *MEMBERS)):
        inside = " & ".join(ref.name for ref in (PUBLISHER, *MEMBERS) if ref.cluster == cluster)
        lines += [f'  subgraph {cluster.replace("/", "_")}["{cluster}"]', *(f"    {n}" for n in inside.split(" & "))]
        lines += ["  end"]
    for source, target in _hops(PUBLISHER, by_place(MEMBERS, order), order):
        lines.append(f"  {source.name} {'==>' if source.cluster != target.cluster else '-->'} {target.name}")
    return "\n".join(lines) + "\n"


def packages() -> str:
    """A table of the packages and of the modules directly in ``saps``, each with its docstring's first paragraph."""
    folders = {file.parent for file in ROOT.glob("*/__init__.py")} - {ROOT / "tests", ROOT / "scripts"}
    found = [*folders, *(file.parent for file in (ROOT / "saps").rglob("__init__.py")), *(ROOT / "saps").glob("*.py")]
    rows = {_dotted(path): _summary(path) for path in found if path.stem not in {"__init__", "__main__", "driver"}}
    lines = [f"| `{name}` | {text} |\n" for name, text in sorted(rows.items()) if name.count(".") < LEVELS]
    return "".join(["\n| package or module | |\n| --- | --- |\n", *lines])


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def _summary(path: Path) -> str:
    source = (path / "__init__.py" if path.is_dir() else path).read_text()
    first = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")[0]
    return " ".join(first.replace("``", "`").split()).replace("|", "\\|")


def main(arguments: list[str]) -> int:
    stale = []
    for page, written in {"architecture.md": packages(), "concepts.md": trees(), "embedding.md": api()}.items():
        text = (DOCS / page).read_text()
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        wanted = f"{before}{BEGIN}{written}\n{END}{after}"
        if wanted != text and "--check" in arguments:
            stale.append(page)
        elif wanted != text:
            (DOCS / page).write_text(wanted)
    for page in stale:
        print(f"docs/{page} is out of date: run scripts/reference_pages.py", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
