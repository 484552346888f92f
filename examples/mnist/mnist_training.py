"""The program of examples/custom-image: Fashion-MNIST, and the model in the volume at /opt/mnist/models.

Without Fashion-MNIST it says where to put it; `--dataset mnist` trains on the digits that are here.
"""

from pathlib import Path

from mnist import main

if __name__ == "__main__":
    main(dataset="fashion-mnist", models=Path("/opt/mnist/models"))
