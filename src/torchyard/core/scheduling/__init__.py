"""Which node a pod, or a whole gang of pods, goes to; and if none, why and what would change that. Pure."""
