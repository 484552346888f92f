"""Resources that are computed for each request and never stored.

Read in this order:
- `handlers`: the table of virtual resources: reviews, bindings, metrics;
- `resource_metrics`: metrics.k8s.io.
"""
