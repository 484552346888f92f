"""The network of the pods: addresses, names, services, and the way out.

Reading order:

- `addresses`: the address ranges of the cluster, and which address each pod has
- `names`: DNS names from Services and EndpointSlices; /etc/hosts and /etc/resolv.conf
- `connection_limit`: how many connections the node holds for pods
- `dialer`: connects to addresses of the cluster from the node
- `dns`: the cluster's DNS server
- `service_ports`: what the node listens on for Services, node ports and host ports
- `session_affinity`: which endpoint a client keeps
- `proxy`, `udp_proxy`: forwarding to pods over TCP and UDP (kube-proxy's task)
- `cluster_services`: keeps names and proxy in step with the API
- `pod_routes`: routes from the machine to pods and Services, if they are wanted
- `outbound`: pods' TCP connections to the outside
- `rendezvous_ports`: how the replicas of a job meet where pods share the machine's network
"""
