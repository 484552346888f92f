"""The program of examples/pvc-checkpoints: 48 batches in 6 epochs, divided among the replicas; the model in the volume.

A single pod takes 48 steps; a master and two workers take 16 each. The learning rate grows with the number of
replicas, because a step then averages that many batches.
"""

from pathlib import Path

from mnist import WORLD_SIZE, main

if __name__ == "__main__":
    main(
        shard=True,
        epochs=6,
        limit=8 * 512,
        batch_size=512,
        adam=True,
        lr=0.002 * WORLD_SIZE,
        log_interval=1,
        models=Path("/opt/pytorch/output"),
    )
