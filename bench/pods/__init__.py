"""Pods on our node beside a kubelet's: how fast they start, talk and answer, and what they cost."""
