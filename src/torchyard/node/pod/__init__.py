"""One pod on this node: from its object to running containers, and back to its status.

A container's start takes five steps, each in a module of its own, in the words of the kubelet, the CRI and containerd:

1. `container_starter`: resolve the image, back off after a failure, emit the events (the kubelet's startContainer)
2. `create_container`: environment, devices, cgroups; writes the config to disk (CRI: CreateContainer)
3. `container_config`: spec, image and mounts become that config (CRI: ContainerConfig)
4. `node.shim.container`: the shim forks, logs and records one attempt (CRI: StartContainer)
5. `node.shim.process`: between fork and exec (containerd: init and exec processes)

Reading order:

- `worker`: the loop that drives a pod (the kubelet's pod worker)
- `observe`: the state that it decides on
- `sandbox`: what the containers of a pod share (CRI: PodSandbox)
- `pod_dir`, `pod_data`, `pod_volumes`, `etc_files`: files, API objects, volumes, /etc of a pod
- `peers`, `shared_memory`: what the pods of one job share
- steps 1 to 3 above, with `environment` for the variables
- `handlers`, `grpc_probe`, `probes`: commands and requests of hooks and probes; when to run them
- `container_stopper`: preStop, SIGTERM, SIGKILL
- `background`: what runs beside the worker is started again after an error
- `status_manager`: the status that is written to the API
"""
