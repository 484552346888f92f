"""Decisions about TrainJobs. Pure: the job, its runtime and its JobSet in; objects, status and events out.

- `view`: the input of a decision.
- `decide`: what to do about a job; calls the others.
- `snapshot`: the runtime as it was when the job was created.
- `patches`: the runtime's template with the job's patches.
- `jobset`: the JobSet of a job: counts, images, commands, variables.
- `policies`: the variables of the ML policies torch, jax and xgboost.
- `elastic`: the variables of the elastic runtime, and the size of a running job.
- `initializers`: the claims of initializers.
- `status_server`: where the nodes report their progress.
- `mpi`: hostfile, keys and mounts of the ML policy mpi.
- `pod_groups`: gang scheduling.
- `failures`: the pods whose failures count.
- `status`: conditions and counts.
- `schema_check`: types of documents that no server has checked.
- `convert_input`, `convert`: PyTorchJobs to TrainJobs and back.
"""
