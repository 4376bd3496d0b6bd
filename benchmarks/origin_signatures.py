"""What it would cost to sign publications at their origin: ``python -m benchmarks.origin_signatures``.

Each broker that delivers a publication would have to verify what its origin has signed. Here is what the signatures
alone take, of one publication, and of a batch of them signed together; beside it, the processor time of a link for one
publication, sealed (`benchmarks.sealed_links`). Best of the rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from hashlib import blake2b

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

BATCH = 64
"""Publications that leave together at full load."""
LENGTHS = (64, 1024, 16_384)
P256 = ec.ECDSA(hashes.SHA256())


def cost(work: Callable[[], object], rounds: int, seconds: float = 0.05) -> float:
    """Microseconds of the processor for one call."""
    best = float("inf")
    for _ in range(rounds):
        calls, begin = 0, time.process_time()
        while (took := time.process_time() - begin) < seconds:
            work()
            calls += 1
        best = min(best, took / calls)
    return best * 1e6


def root(batch: list[bytes]) -> bytes:
    """What stands for all publications of a batch."""
    return blake2b(b"".join(blake2b(each).digest() for each in batch)).digest()


def sign_batch(key: Ed25519PrivateKey, batch: list[bytes]) -> bytes:
    """One signature for all."""
    return key.sign(root(batch))


def verify_batch(key: Ed25519PublicKey, signature: bytes, batch: list[bytes]) -> None:
    """Raises if it is not theirs."""
    key.verify(signature, root(batch))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    edwards, curve = Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256R1())
    print("| payload | Ed25519: sign | verify | P-256: sign | verify | a batch of 64, Ed25519, each: sign | verify |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for length in LENGTHS:
        said = bytes(length)
        batch = [said[:-1] + bytes((number,)) for number in range(BATCH)]
        signed, curved = edwards.sign(said), curve.sign(said, P256)
        together = sign_batch(edwards, batch)
        figures = [
            cost(partial(edwards.sign, said), rounds),
            cost(partial(edwards.public_key().verify, signed, said), rounds),
            cost(partial(curve.sign, said, P256), rounds),
            cost(partial(curve.public_key().verify, curved, said, P256), rounds),
            cost(partial(sign_batch, edwards, batch), rounds) / BATCH,
            cost(partial(verify_batch, edwards.public_key(), together, batch), rounds) / BATCH,
        ]
        print(f"| {length} B | " + " | ".join(f"{figure:.1f} us" for figure in figures) + " |")


if __name__ == "__main__":
    main()
