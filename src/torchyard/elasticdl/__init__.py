"""ElasticDL's command line and master on the elastic runtime: `elasticdl train …` as in its tutorial.

Reading order:

- `cli`: the `elasticdl` command, which creates the master pod.
- `flags`, `flag_values`: the flags of the commands, and how their values are parsed.
- `pods`: the pods of a job; pure.
- `supervisor`: the main process of the master pod, which restarts the master.
- `master`: runs the coordinator and the worker pods of a job.
- `worker_plan`: how many worker pods to create; pure.
- `zoo`: builds the image of a directory of models.
- `compat`: the module name that every ElasticDL client starts.
"""
