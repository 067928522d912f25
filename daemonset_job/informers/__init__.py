"""The caches of a program: nodes, Jobs and what belongs to them, each followed by a reflector.

Layer: above ``kube`` and ``api``. It does not know what a change of an object means.
"""
