"""What shall be: the DaemonSet that a Job asks for."""
