"""The resources of containers: `cgroups` enforces limits, `usage` samples /proc, `metrics` serves `kubectl top`."""
