"""What is so: the snapshot, and what follows from it for nodes, counts and the run."""
