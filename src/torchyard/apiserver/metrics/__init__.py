"""The server's own metrics, with kube-apiserver's names.

Read in this order:
- `requests`: counters and durations, in plain numbers;
- `event_loop`: how long the event loop was blocked, and by which callbacks;
- `exposition`: the Prometheus text format. It loads `prometheus_client`, so it is imported on the first scrape.
"""
