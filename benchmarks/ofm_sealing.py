"""What sealing costs a broker for each datagram: ``python -m benchmarks.ofm_sealing``.

One process, no network: a publication is made and sealed, opened and read; beside it the same without sealing, and the
two ciphers that the `cryptography` library offers for this. The best of several rounds: others may use the machine.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from benchmarks.machine import this_machine
from benchmarks.section import update_page
from saps.ofm.datapath.datagram import parse, publications
from saps.ofm.keys.epochs import Keyring, Opened
from saps.ofm.keys.hierarchy import Hierarchy
from saps.ofm.keys.sealing import HEADER
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.frames.delivery import GroupKeys, Part, Publish
from saps.overlay.ring.keys import BrokerRef

PAGE = Path(__file__).resolve().parent.parent / "docs" / "ofm.md"
SIZES = (100, 500, 1300)
"""Bytes of a payload."""
ROUNDS, COUNT = 25, 1000
TOPIC, TREE = "air/ward1", Tree("239.77.0.1:5000", 7)
ME = BrokerRef("b1", 1_763_700_000_000, "10.0.1.1:7300", "tokyo/ward1")


def ring() -> Keyring:
    """With the key of a group of one, always the same."""
    made, hierarchy = Keyring(ME), Hierarchy[BrokerRef](b"group001", bytes)
    hierarchy.change([ME])
    root = hierarchy.root
    assert root is not None
    assert made.take(GroupKeys(TOPIC, b"group001", root.id, [*hierarchy.path(ME)], 6.0, hierarchy.leaf(ME)), 0.0)
    return made


def best(prepare: Callable[[], Callable[[int], object]]) -> float:
    """Microseconds that one call takes, in the best round. It is called with 0, 1, 2 ..."""
    found = float("inf")
    for _ in range(ROUNDS):
        call = prepare()
        began = time.thread_time()
        for number in range(COUNT):
            call(number)
        found = min(found, (time.thread_time() - began) / COUNT)
    return found * 1e6


def sending(payload: bytes, *, sealed: bool) -> Callable[[], Callable[[int], object]]:
    """Make the datagram of a publication."""

    def prepare() -> Callable[[int], object]:
        keys = ring()

        def send(number: int) -> object:
            body = Publish(0, 0, 0, 1, False, [Part(TOPIC, number)], [0], [number + 1], [payload])
            plain = publications(TREE, ME, number + 1, body)
            return keys.seal(TOPIC, plain, 0.0) if sealed else plain

        return send

    return prepare


def receiving(payload: bytes, *, sealed: bool) -> Callable[[], Callable[[int], object]]:
    """Read it."""

    def prepare() -> Callable[[int], object]:
        make, keys = sending(payload, sealed=sealed)(), ring()
        raws = [make(number) for number in range(COUNT)]

        def receive(number: int) -> object:
            raw = raws[number]
            assert isinstance(raw, bytes)
            if not sealed:
                return parse(raw)
            opened = keys.open(raw, 0.0)
            assert isinstance(opened, Opened)
            return parse(opened.plain)

        return receive

    return prepare


def refusing(payload: bytes) -> Callable[[], Callable[[int], object]]:
    """Refuse a forged one, of which only the key can tell."""

    def prepare() -> Callable[[int], object]:
        keys, other = ring(), ring()
        raw = other.seal(TOPIC, payload, 0.0)
        assert raw is not None
        forged = raw[:-1] + bytes([raw[-1] ^ 1])
        return lambda number: keys.open(forged, 0.0)

    return prepare


def cipher(kind: type[AESGCM] | type[ChaCha20Poly1305], payload: bytes) -> Callable[[], Callable[[int], object]]:
    """Encrypt a datagram of the size of the payload and decrypt it."""

    def prepare() -> Callable[[int], object]:
        aead, header = kind(bytes(32)), bytes(HEADER.size)

        def both(number: int) -> object:
            nonce = number.to_bytes(12, "big")
            return aead.decrypt(nonce, aead.encrypt(nonce, payload, header), header)

        return both

    return prepare


def markdown() -> str:
    rows = [
        f"`python -m benchmarks.ofm_sealing`; {this_machine().processor}. Microseconds of the processor for one "
        "datagram, the best of several rounds:",
        "",
        "| payload | make it | and seal it | read it | open and read it | refuse a forged one | AES-256-GCM, both ways "
        "| ChaCha20-Poly1305 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for size in SIZES:
        payload = os.urandom(size)
        found = [
            best(sending(payload, sealed=False)),
            best(sending(payload, sealed=True)),
            best(receiving(payload, sealed=False)),
            best(receiving(payload, sealed=True)),
            best(refusing(payload)),
            best(cipher(AESGCM, payload)),
            best(cipher(ChaCha20Poly1305, payload)),
        ]
        rows.append(f"| {size} B | " + " | ".join(f"{figure:.2f}" for figure in found) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dry", action="store_true", help="write nothing into docs/ofm.md")
    arguments = parser.parse_args()
    text = markdown()
    print(text)
    if not arguments.dry:
        update_page(PAGE, "sealing", text)


if __name__ == "__main__":
    main()
