"""ElasticDL's programs on this runtime: the implementation of the `elasticai_api` names.

Such a program reads records through its own DataLoader and calls a wrapped function once per batch. Here every batch
is leased as one micro-batch of a step, and the wrapped function only computes gradients; the runtime reduces and
applies the step. So the program cannot break the exactly-once guarantee.

Reading order:

- `controller`: `PyTorchAllReduceController`, which runs the program's function.
- `services`: `DataShardService` and `RecordIndexService`, which provide record numbers.
- `leases`: which micro-batch a batch of the program is.
"""
