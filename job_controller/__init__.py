"""The controller of daemonset-job: a Job becomes a DaemonSet, its record a JobReport."""
