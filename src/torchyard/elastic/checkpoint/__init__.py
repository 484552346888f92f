"""Keeps state: staged in shared memory, where it outlives its worker, and as checkpoints on disk or in object stores.

Reading order:

- `manager`: when state is staged and saved, and which state a new worker restores.
- `staging`: copies the state to shared memory while the next step computes.
- `staged`: the format of a staged state, and how to load it.
- `writer`: a process that saves a staged state; also loads checkpoints.
- `safetensors_file`: the tensors of a checkpoint.
- `dcp_reader`: reads the checkpoints of version 0.1.
- `files`: checkpoint directories: manifests, verification, pruning.
- `remote`: checkpoints in object stores.
"""
