"""TrainJobs on a real Kubernetes: the operator and upstream's managers; see `__main__`."""
