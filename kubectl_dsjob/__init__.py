"""The kubectl plugin `kubectl dsjob`: a client of the API server with the rights of its user.

Layer: above ``daemonset_job``. It knows neither the controller nor the terminator.
"""
