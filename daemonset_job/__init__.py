"""What all programs of daemonset-job share: the API's types, Kubernetes' client, the runtime.

It knows no program: `job_controller` and `terminator` import it, and it imports neither.
"""
