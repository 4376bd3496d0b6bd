"""Coverage-guided fuzzing of MQTT's codec and session machine and of OFM datagrams (Atheris: `pip install atheris`).

    python -m scripts.fuzz machine --seconds 600

Finds bytes that break `tests.frontend.mqtt.fuzzing` or `tests.ofm.datagram_fuzzing`: an exception, a limit that does
not hold, or an input that takes longer than `--patience` seconds of the processor. It is written to the folder
`crashers` beside that module, where every run of the tests tries it, and the exit status is not 0. The corpus grows in
`.fuzz/`; it begins with well-formed packets.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
MQTT, OFM = ROOT / "tests" / "frontend" / "mqtt", ROOT / "tests" / "ofm"
FOLDERS = {"codec": MQTT, "machine": MQTT, "datagrams": OFM}
"""Where each target's tests are."""
MEMORY = 1024
"""MiB the process may have; libFuzzer ends it beyond that."""


class Fuzzing:
    """One target, with what is counted of it."""

    def __init__(self, name: str, target: Callable[[bytes], None], patience: float) -> None:
        self.name = name
        self._target = target
        self._patience = patience
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
            self._target(data)
            took = time.process_time() - before
            self.slowest = max(self.slowest, took)
            assert took <= self._patience, f"{took:.3f} s for {len(data)} bytes"
        except BaseException:
            name = f"{self.name}-{hashlib.sha256(data).hexdigest()[:12]}"
            crashers = FOLDERS[self.name] / "crashers"
            crashers.mkdir(exist_ok=True)
            (crashers / name).write_bytes(data)
            print(f"kept as {crashers / name}", file=sys.stderr)
            raise

    def report(self) -> str:
        seconds = time.monotonic() - self._started
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        return (
            f"{self.name}: {self.inputs} inputs, {self.bytes} bytes, {seconds:.0f} s, "
            f"slowest {self.slowest * 1000:.0f} ms, at most {memory} MiB"
        )


def seeds(target: str, count: int = 300) -> list[bytes]:
    """Well-formed packets or datagrams to begin with; for the machine as actions."""
    if target == "datagrams":
        from tests.ofm.datagram_fuzzing import seeds as sound

        return sound()
    from hypothesis import Phase, given, settings

    from saps.frontend.mqtt.encode import encode
    from saps.frontend.mqtt.packets import Packet
    from tests.frontend.mqtt.strategies import packets

    found: list[bytes] = []
    for version in (4, 5):

        @settings(max_examples=count // 2, phases=[Phase.generate], database=None, deadline=None, derandomize=True)
        @given(packets(version))
        def draw(packet: Packet) -> None:
            found.append(encode(packet, version))  # noqa: B023 - called right here

        draw()
    if target == "codec":
        return found
    rng = Random(1)
    begin = [b"\xe0\x03", b"\xe0\x27", b"\xe0\x44", b"\xe0\x6f"]
    return [
        rng.choice(begin)
        + b"".join(bytes((0, len(data))) + data for data in rng.choices(found, k=4) if len(data) < 256)
        + bytes((rng.randrange(0xE0, 0xE7), rng.randrange(256)))
        for _ in found
    ]


def main() -> None:
    from atheris import Fuzz, Setup, instrument_imports  # type: ignore[import-untyped,import-not-found,unused-ignore]

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", choices=list(FOLDERS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--patience", type=float, default=1.0, help="seconds of the processor for one input")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable()
    with instrument_imports(include=["saps"]):
        from tests.frontend.mqtt.fuzzing import MAX_INPUT, TARGETS
        from tests.ofm.datagram_fuzzing import fuzz_datagrams
    targets = {**TARGETS, "datagrams": fuzz_datagrams}
    fuzzing = Fuzzing(arguments.target, targets[arguments.target], arguments.patience)
    corpus = ROOT / ".fuzz" / arguments.target
    corpus.mkdir(parents=True, exist_ok=True)
    if not any(corpus.iterdir()):
        for number, data in enumerate(seeds(arguments.target)):
            (corpus / f"seed{number}").write_bytes(data)
    last = time.monotonic() + arguments.seconds

    def one(data: bytes) -> None:
        fuzzing.one(data)
        if time.monotonic() > last:
            print(fuzzing.report(), flush=True)
            os._exit(0)  # libFuzzer has no other way to end a run that found nothing from here

    options = [
        f"-max_len={MAX_INPUT}",
        f"-rss_limit_mb={MEMORY}",
        f"-seed={arguments.seed}",
        "-timeout=60",
        "-verbosity=0",
        f"-artifact_prefix={ROOT}/.fuzz/",
    ]
    Setup([sys.argv[0], *options, str(corpus)], one)
    Fuzz()


if __name__ == "__main__":
    main()
