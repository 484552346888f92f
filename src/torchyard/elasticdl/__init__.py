"""ElasticDL's command line and master, on the elastic runtime: `elasticdl train …` as its tutorial types it.

A face (the client) and a controller (the master, which keeps a job's worker pods). What a worker does is the runtime's.
"""
