"""The controller of daemonset-job: a Job becomes a DaemonSet, its story a JobReport."""
