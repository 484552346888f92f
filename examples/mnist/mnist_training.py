"""The program of examples/custom-image: Fashion-MNIST, and the model in the volume at /opt/mnist/models.

Without Fashion-MNIST it says where to put the files; `--dataset mnist` trains on the included digits.
"""

from pathlib import Path

from mnist import main

if __name__ == "__main__":
    main(dataset="fashion-mnist", models=Path("/opt/mnist/models"))
