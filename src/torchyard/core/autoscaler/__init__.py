"""How many replicas a HorizontalPodAutoscaler asks for, from the usage of its pods. Pure.

- `decide`: the decision, with the status that explains it.
- `replica_calculator`: the replicas that one metric asks for.
- `behavior`: stabilization and scaling policies, which limit how fast the count changes.
"""
