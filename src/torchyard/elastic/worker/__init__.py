"""The worker runtime: lives in the training process and carries it through every change of the world."""
