"""What becomes of a pod on its node, as the kubelet decides it: pure functions of the pod and what was observed."""
