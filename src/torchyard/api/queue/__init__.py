"""Queues of kueue.x-k8s.io: their names and words, rules, definitions, and the two versions they are spoken in."""
