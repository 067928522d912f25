"""The controller of daemonset-job: it makes a DaemonSet and a JobReport of a Job."""
