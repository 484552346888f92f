"""Names in the usage of metrics.k8s.io beside cpu and memory, which only a plane's node reports."""

from __future__ import annotations

GPUS = "nvidia.com/gpu"  # how many GPUs are busy, such as 730m of one
GPU_MEMORY = "nvidia.com/gpu.memory"
