"""What happens to a pod on its node, as the kubelet decides it: pure functions of the pod and its observed state.

- `view`: the observed state of a pod and its containers.
- `decide`: which containers to start and to stop.
- `status`: the pod's status.
- `logs`: the options of `kubectl logs`.
"""
