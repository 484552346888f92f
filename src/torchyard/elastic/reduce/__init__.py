"""Averages gradients over the world.

Reading order:

- `buffers`: the buffers of a model that a forward pass changes.
- `gradient_buffer`: the gradients of a model, as tensors of their own or as one vector.
- `tree`: the fixed order of additions; pure.
- `strict`: adds by micro-batch number, with the same bits for every world size.
- `fast`: all-reduce in buckets during backward.
"""
