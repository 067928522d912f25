"""A kind node image from Go modules and Debian packages, for machines without a registry.

Kubernetes, etcd and CoreDNS are built from unmodified sources. Small programs replace what no Go
module proxy or Debian archive has. These are crictl (the calls that kind makes), kindnetd (IPv4
routes between nodes, no NetworkPolicy, no way out of the cluster) and pause.
"""
