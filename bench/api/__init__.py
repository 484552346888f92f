"""The API server beside kube-apiserver and etcd: writes, reads, lists, watches, start-up, memory."""
