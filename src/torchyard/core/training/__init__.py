"""What the controllers of training jobs share: PyTorchJobs and TrainJobs.

- `pods`: phases, exit codes and restarts of pods.
- `failures`: the first failed pod of a job, and what its container said.
- `elastic`: the variables and the token of the elastic runtime's workers.
- `pod_groups`: names of gang schedulers' PodGroups, and the resources of a group.

The names of torchrun's variables, which both set, are in `api.torchrun`.
"""
