"""A kind node image from Go modules and Debian packages, for machines without a registry.

Unmodified Kubernetes, etcd and CoreDNS sources in images of our own; small stand-ins for what no
Go module proxy or Debian archive carries: crictl (the calls kind makes), kindnetd (IPv4 routes
between nodes, no NetworkPolicy, no way out of the cluster) and pause.
"""
