"""Averages gradients over the world.

Reading order:

- `buffers`: the buffers of a model that a forward pass changes.
- `gradient_buffer`: all gradients of a model as one vector.
- `tree`: the fixed order of additions; pure.
- `strict`: adds by micro-batch number, with the same bits for every world size.
- `fast`: all-reduce in buckets during backward.
"""
