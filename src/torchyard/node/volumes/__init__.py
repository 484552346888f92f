"""From a pod's volumes to directories and files on this machine, and from there to a container's mounts."""
