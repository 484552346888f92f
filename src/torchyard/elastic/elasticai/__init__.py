"""What stands behind the `elasticai_api` names: ElasticDL's programs on this runtime.

Such a program pulls records through its own DataLoader and calls a wrapped function once per batch. Here every batch it
pulls is leased as one micro-batch of a step, and the wrapped function only computes gradients: the step is reduced and
applied by the runtime. So the program's text decides nothing about correctness.
"""
