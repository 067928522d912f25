"""Leader election on a Lease: the loop, one attempt at the Lease, and what is written into it."""
