"""The DaemonSet that a Job asks for."""
