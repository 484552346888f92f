"""A client library for the Kubernetes API, in the manner of client-go. It knows no kinds.

Modules in reading order:

- `client`: the verbs of the API, and the transport protocol
- `local`: the in-process transport
- `http`: the HTTP transport
- `http_connection`: the connection pool of the HTTP transport
- `container_streams`: exec, attach and port-forward
- `completion`: requests that are not interrupted
- `concurrency`: the adaptive limit on concurrent requests
- `kubeconfig`: reading kubeconfig files
- `kubeconfig_entry`: writing our entry into a kubeconfig
- `credentials`: tokens, client certificates, exec plugins
- `connect`: a client as a context manager
- `discovery`: finding the resource of a kind
- `spelling`, `schema_fields`: what a misspelled field or name probably means
- `job_lookup`: the jobs of a cluster, their pods, workloads and events
- `informer`: a local cache of one resource
- `packed_informer`: a cache that keeps objects as JSON
- `transform`: what a cache stores of an object
- `informer_factory`: informers shared by the controllers of a process
- `workqueue`: the queue between informers and workers
- `supervisor`, `supervisor_metrics`: the concurrent parts of a process, each restarted when it fails
- `event_recorder`: recording events
- `leader_election`: one active process among several
- `log_limit`: a limit on repeated log lines
- `sample_store`: the curves of jobs on disk
- `process`: event loop and garbage collector of a long-running process
"""
