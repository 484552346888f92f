"""The training loop of a worker.

Reading order:

- `trainer`: computes, reduces and applies one step after the other.
- `loader`: loads micro-batches ahead of time.
- `streams`: a dataset whose sources can only be read in sequence.
"""
