"""Fuzzing of everything that faces a network (`tests.fuzzing.targets`).

    python -m scripts.fuzz --list
    python -m scripts.fuzz node --seconds 600
    python -m scripts.fuzz all --seconds 300 --keep 40

Looks for bytes that break a target: an exception, a limit that does not hold, somebody else who notices, or an input
that takes longer than the target's timeout. Such an input is written to `tests/fuzzing/crashers`, where every run of
the tests tries it, and the exit status is not 0. With Atheris (`pip install atheris`) what is tried next depends on the
code that was reached; without, inputs are changed blindly. The corpus grows in `--corpus`, begins with the target's
seeds and what the tests keep; `--keep` has the tests keep the few inputs of it that reach the most lines.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import logging
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

from tests.fuzzing import target as kept
from tests.fuzzing import targets
from tests.fuzzing.target import Target

ROOT = Path(__file__).resolve().parent.parent
CODE = str(ROOT / "saps") + os.sep
MEMORY = 2048
"""MiB the process may have; libFuzzer ends it beyond that."""
LOOKED_AT = 600
"""Inputs, at most, among which `--keep` chooses."""
LONGEST_KEPT = 1024
"""Bytes of an input that the tests keep."""


class Fuzzing:
    """One target, with what is counted of it."""

    def __init__(self, target: Target, crashers: Path = kept.CRASHERS) -> None:
        self._target = target
        self._crashers = crashers
        self.inputs = 0
        self.bytes = 0
        self.slowest = 0.0
        self._started = time.monotonic()

    def one(self, data: bytes) -> None:
        """Try one input. Raises what the target raises, after the input has been kept."""
        self.inputs += 1
        self.bytes += len(data)
        before = time.process_time()
        try:
            self._target.run(data)
            took = time.process_time() - before
            self.slowest = max(self.slowest, took)
            assert took <= self._target.timeout, f"{took:.3f} s for {len(data)} bytes"
        except BaseException:
            self._crashers.mkdir(exist_ok=True)
            path = self._crashers / f"{self._target.name}-{hashlib.sha256(data).hexdigest()[:12]}"
            path.write_bytes(data)
            print(f"kept as {path}", file=sys.stderr)
            raise

    def report(self, corpus: Path) -> str:
        seconds = time.monotonic() - self._started
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        return (
            f"{self._target.name}: {self.inputs} inputs, {self.bytes} bytes, {seconds:.0f} s, "
            f"{len(inputs_in(corpus))} in the corpus, slowest {self.slowest * 1000:.0f} ms, at most {memory} MiB"
        )


def inputs_in(corpus: Path) -> list[bytes]:
    """All inputs of a folder, the shortest first."""
    return sorted(
        (path.read_bytes() for path in corpus.iterdir() if path.is_file()), key=lambda data: (len(data), data)
    )


def begin(target: Target, corpus: Path) -> None:
    """See that the folder has the target's seeds, and what the tests keep."""
    corpus.mkdir(parents=True, exist_ok=True)
    for data in (*target.seeds(), *kept.corpus(target.name)):
        path = corpus / hashlib.sha1(data, usedforsecurity=False).hexdigest()
        if not path.exists():
            path.write_bytes(data)


# --- engines ------------------------------------------------------------------------------------------------------


def guided(name: str, corpus: Path, seconds: float, seed: int, progress: bool) -> None:
    """Atheris: does not return."""
    from atheris import Fuzz, Setup, instrument_imports  # type: ignore[import-untyped,import-not-found,unused-ignore]

    with instrument_imports(include=["saps"]):
        target = targets.target(name)
    begin(target, corpus)
    fuzzing = Fuzzing(target)
    last = time.monotonic() + seconds

    def one(data: bytes) -> None:
        fuzzing.one(data)
        if time.monotonic() > last:
            print(fuzzing.report(corpus), flush=True)
            os._exit(0)  # libFuzzer has no other way to end a run that found nothing from here

    options = [
        f"-max_len={target.longest}",
        f"-rss_limit_mb={MEMORY}",
        f"-seed={seed}",
        "-timeout=120",
        f"-verbosity={int(progress)}",
        f"-artifact_prefix={corpus.parent}/",
    ]
    Setup([sys.argv[0], *options, str(corpus)], one)
    Fuzz()


def blind(fuzzing: Fuzzing, known: list[bytes], longest: int, seconds: float, rng: Random) -> None:
    """Inputs made of known ones, until the time is over. Raises what the target raises."""
    last = time.monotonic() + seconds
    for data in known:
        fuzzing.one(data)
    while time.monotonic() < last:
        fuzzing.one(changed(known, longest, rng))


def changed(known: list[bytes], longest: int, rng: Random) -> bytes:
    """An input that resembles some of the known ones."""
    data = bytearray(rng.choice(known))
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[place : place + 1] = bytes((rng.randrange(256),))
            case 1:
                data[place:place] = rng.randbytes(rng.randrange(1, 9))
            case 2:
                del data[place : place + rng.randrange(1, 9)]
            case 3:
                data[place:] = rng.choice(known)[-rng.randrange(1, 64) :]
            case _:
                data[place : place + 1] = bytes((data[place] ^ 1 << rng.randrange(8),)) if place < len(data) else b"\0"
    return bytes(data[:longest])


# --- what the tests keep --------------------------------------------------------------------------------------------


def choose(target: Target, inputs: Iterable[bytes], most: int) -> list[bytes]:
    """At most so many of the inputs, which together reach many lines: always the one that adds the most."""
    reached = {data: lines(target.run, data) for data in inputs if len(data) <= LONGEST_KEPT}
    chosen: list[bytes] = []
    covered: set[tuple[CodeType, int]] = set()
    while reached and len(chosen) < most:
        best = max(reached, key=lambda data: (len(reached[data] - covered), -len(data)))
        added = reached.pop(best) - covered
        if not added:
            break
        covered |= added
        chosen.append(best)
    print(f"{target.name}: {len(chosen)} inputs kept, {len(covered)} lines", flush=True)
    return chosen


def lines(run: Callable[[bytes], object], data: bytes) -> set[tuple[CodeType, int]]:
    """The lines of the product that an input reaches."""
    found: set[tuple[CodeType, int]] = set()

    def local(frame: FrameType, event: str, _: Any) -> Any:
        found.add((frame.f_code, frame.f_lineno))
        return local

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        return local if frame.f_code.co_filename.startswith(CODE) else None

    sys.settrace(trace)
    try:
        run(data)
    finally:
        sys.settrace(None)
    return found


def again(*options: str) -> int:
    """The exit status of this program, run with other options."""
    return subprocess.run([sys.executable, "-m", "scripts.fuzz", *options], check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", nargs="?", choices=[*targets.MODULES, "all"])
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--corpus", type=Path, default=ROOT / ".fuzz", help="a folder, with one for each target in it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--blind", action="store_true", help="not with Atheris, even if it is there")
    parser.add_argument("--progress", action="store_true", help="show what libFuzzer says: cov is the edges reached")
    parser.add_argument("--keep", type=int, default=0, help="inputs that the tests shall keep, at most")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # errors with a traceback are looked at by the targets
    if arguments.list or arguments.target is None:
        for name in targets.MODULES:
            found = targets.target(name)
            print(f"{name:14} {found.sender}; {len(kept.corpus(name))} inputs kept")
        return 0
    if arguments.target == "all":
        options = [option for option in sys.argv[1:] if option != "all"]
        return max(again(name, *options) != 0 for name in targets.MODULES)
    corpus = arguments.corpus / arguments.target
    if arguments.seconds > 0:
        if importlib.util.find_spec("atheris") is not None and not arguments.blind:
            if arguments.keep:  # Atheris ends its process
                options = [
                    "--seconds",
                    str(arguments.seconds),
                    "--corpus",
                    str(arguments.corpus),
                    "--seed",
                    str(arguments.seed),
                ]
                if status := again(arguments.target, *options):
                    return status
            else:
                guided(arguments.target, corpus, arguments.seconds, arguments.seed, arguments.progress)
        else:
            found = targets.target(arguments.target)
            begin(found, corpus)
            fuzzing = Fuzzing(found)
            blind(fuzzing, inputs_in(corpus), found.longest, arguments.seconds, Random(arguments.seed))
            print(fuzzing.report(corpus))
    if arguments.keep:
        found = targets.target(arguments.target)
        begin(found, corpus)
        some = inputs_in(corpus)
        if len(some) > LOOKED_AT:
            some = Random(1).sample(some, LOOKED_AT)
        kept.keep(found.name, choose(found, some, arguments.keep))
    return 0


if __name__ == "__main__":
    sys.exit(main())
