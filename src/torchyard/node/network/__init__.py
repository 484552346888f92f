"""The pods' network: addresses, names, and services inside the cluster's own namespace."""
