"""Compiles the modules that every publication passes with mypyc, from the very files that also run as they are.

    python scripts/compile_hot.py [--into FOLDER] [--try]

Writes the libraries, and `saps/compiled.json` with what they were made from, beside their sources or into a folder.
Does nothing if that is what is there. Without a C compiler it says what to install; exit status 3, with --try 0.

It needs mypy and setuptools, msgspec for its types, and nothing of SAPS: a wheel is built with it, too
(`scripts/hatch_build.py`).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, redirect_stderr, redirect_stdout
from importlib.util import source_hash
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
COMPILED = tuple(
    f"saps/{folder}/{name}.py".replace("/./", "/")
    for folder, names in {
        ".": ("topics",),
        "agents": ("user",),
        "embedded": ("inbox",),
        "frontend/mqtt": ("common", "frontend", "timers"),
        "frontend/mqtt/codec": ("decode", "encode", "properties", "publish_cut", "publish_encode", "wire"),
        "frontend/mqtt/connection": (
            "client_connection",
            "connection",
            "flow_control",
            "held",
            "keep_alive",
            "outbound",
            "output",
            "publish_handler",
        ),
        "frontend/mqtt/driver": ("tcp_client",),
        "frontend/mqtt/session": ("durable", "journaled", "message_queue", "replay", "session", "sessions", "window"),
        "frontend/upstream": ("exporter",),
        "routing": ("batch", "groups", "hub", "reserved", "routes", "subscriptions"),
        "storage": ("commits", "journal"),
        "overlay": ("mesh", "node_port"),
        "overlay/delivery": (
            "acknowledgements",
            "forwarding",
            "multicast",
            "numbers",
            "order",
            "outgoing",
            "pending",
            "publications",
        ),
        "overlay/sessions/replicas": ("changes", "copies", "source"),
        "links": ("receiver",),
        "ofm/controller": ("concerns", "record"),
        "ofm/datapath": ("congestion", "datapath", "flights", "loads", "marks", "packing", "path", "reach", "receiver"),
        "ofm/flows": ("reconcile", "switch_state"),
        "ofm/openflow": ("encode",),
        "ofm/trees": ("growth", "tree"),
    }.items()
    for name in names
)
"""What every publication passes, by ALM or OFM, and each tree that is repaired. Nothing that is not compiled may have
subclasses of these."""
READ = (
    *(f"saps/{name}.py" for name in ("mesh", "messages", "routing/priority", "routing/retained_messages")),
    *(
        f"saps/frontend/mqtt/{name}.py"
        for name in ("counts", "limits", "codec/packets", "codec/reasons", "driver/traffic")
    ),
    *(f"saps/ofm/{name}.py" for name in ("controller/events", "flows/plan", "flows/tables")),
)
"""What those take from these is known by its type; of all other modules nothing is."""
GROUP = "saps.hot"
"""All that is compiled is in one library, ``saps/hot__mypyc``; the other libraries lead to it."""
STAMP = "saps/compiled.json"
OPTIONS = ("--config-file=", f"--cache-dir={os.devnull}", "--follow-imports=skip", "--ignore-missing-imports")
"""Types are checked elsewhere. To read no more than is named here takes 3 s instead of 25."""
NO_TOOLS = 3
"""Exit status: something must be installed first."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--into", type=Path, default=ROOT, metavar="FOLDER")
    parser.add_argument("--try", dest="trying", action="store_true", help="without a compiler do nothing, and say so")
    chosen = parser.parse_args()
    folder: Path = chosen.into.resolve()
    if up_to_date(folder):
        return 0
    if up_to_date(ROOT):
        put(ROOT, folder)
        return 0
    if missing := missing_tools():
        print(f"compiled modules: {missing}. Without them everything works, only slower.", file=sys.stderr)
        return 0 if chosen.trying else NO_TOOLS
    print(f"compiled modules: compiling {len(COMPILED)} of them, which takes a minute", file=sys.stderr)
    with tempfile.TemporaryDirectory() as built:
        if fault := build(Path(built)):
            print(f"compiled modules: mypyc or the C compiler failed\n{fault}", file=sys.stderr)
            return 1
        put(Path(built), folder)
    return 0


def digests() -> dict[str, str]:
    """What is compiled: the hash of each source, as `saps.runtime.compiled` takes it."""
    return {source: source_hash((ROOT / source).read_bytes()).hex() for source in COMPILED}


def libraries() -> list[str]:
    """The files that are made, for this Python."""
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    doors = [Path(source).with_suffix(suffix).as_posix() for source in COMPILED]
    return [*doors, f"{GROUP.replace('.', '/')}__mypyc{suffix}"]


def up_to_date(folder: Path) -> bool:
    """True if all of it is there, made from the present sources."""
    try:
        stamp = json.loads((folder / STAMP).read_bytes())
    except (OSError, ValueError):
        return False
    return bool(stamp == digests()) and all((folder / library).exists() for library in libraries())


def missing_tools() -> str:
    """What a build needs and is not there, and how to get it; empty if nothing is missing."""
    compiler = (os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc")).split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler}): sudo apt-get install gcc python3-dev"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "no Python.h: sudo apt-get install python3-dev"
    return ""


def build(into: Path) -> str:
    """Build the libraries in an empty folder. Returns what the tools said if they failed, else nothing."""
    from mypyc.build import mypycify
    from setuptools import Distribution  # type: ignore[import-untyped,unused-ignore]

    os.chdir(ROOT)  # mypyc takes the modules' names from their paths
    generated, said = str(into / "generated"), io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            extensions = mypycify(
                [*OPTIONS, *COMPILED, *READ],
                only_compile_paths=COMPILED,
                opt_level="2",
                multi_file=True,
                debug_level="0",
                target_dir=generated,
                group_name=GROUP,
            )
            for extension in extensions:  # mypyc puts the group's header into the folder of its package
                extension.include_dirs.append(str(Path(generated, GROUP.partition(".")[0])))
            command = Distribution({"name": "hot", "ext_modules": extensions}).get_command_obj("build_ext")
            command.build_lib, command.build_temp = str(into), generated
            command.ensure_finalized()
            with on_all_processors():
                command.run()
    except (Exception, SystemExit) as error:
        return f"{said.getvalue()}{error}"
    return ""


def on_all_processors() -> AbstractContextManager[object]:
    """Compile the C files of a library side by side, which setuptools does one after the other."""
    from setuptools._distutils.ccompiler import CCompiler  # type: ignore[import-untyped,unused-ignore]

    one_by_one = CCompiler.compile

    def compile_all(self: Any, sources: list[str], *rest: Any, **options: Any) -> list[str]:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            done = pool.map(lambda source: one_by_one(self, [source], *rest, **options), sources)
            return [each for objects in done for each in objects]

    return patch.object(CCompiler, "compile", compile_all)


def put(built: Path, folder: Path) -> None:
    """Put the libraries in their places, each in one step: a broker that runs keeps those it has loaded."""
    (folder / STAMP).unlink(missing_ok=True)
    for found in (folder / "saps").rglob("*.so"):
        if found.relative_to(folder).as_posix() not in libraries():
            found.unlink()  # of a module that is not compiled any more
    for library in libraries():
        target = folder / library
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copyfile(built / library, half)
        half.replace(target)
    (folder / STAMP).write_text(json.dumps(digests(), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
