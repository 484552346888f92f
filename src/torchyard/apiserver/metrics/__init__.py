"""The server's own metrics, with kube-apiserver's names.

Read in this order:
- `requests`: counters and durations, in plain numbers;
- `exposition`: the Prometheus text format. It loads `prometheus_client`, so it is imported on the first scrape.
"""
