"""The training loop of a worker.

Reading order:

- `startup_check`: refuses what would give a wrong or irreproducible model, before the first step.
- `unchanged`: checks the same while training.
- `trainer`: computes, reduces and applies one step after the other.
- `own_loop`: the same for programs that keep their own loop.
- `update`: turns the mean gradient into new parameters.
- `data_source`: the dataset, or what is taken over from a `DataLoader`.
- `loader`, `loader_process`: load micro-batches ahead of time.
- `seeding`: seeds every generator of random numbers.
- `streams`: a dataset whose sources can only be read in sequence.
"""
