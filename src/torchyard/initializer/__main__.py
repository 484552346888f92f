"""`python -m torchyard.initializer dataset|model [--target DIRECTORY]`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from torchyard.initializer.errors import InitializerError
from torchyard.initializer.initialize import initialize
from torchyard.initializer.request import TARGETS

_TERMINATION_MESSAGE = Path("/dev/termination-log")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="torchyard.initializer", description=__doc__)
    parser.add_argument("kind", choices=sorted(TARGETS))
    parser.add_argument("--target", type=Path, help="where it is put; by default below /workspace")
    options = parser.parse_args(arguments)
    try:
        message = initialize(options.kind, os.environ, options.target or TARGETS[options.kind])
    except InitializerError as error:
        sys.stderr.write(f"error: {error}\n")
        if _TERMINATION_MESSAGE.is_file():
            _TERMINATION_MESSAGE.write_text(str(error))
        return 1
    sys.stdout.write(f"{message}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
