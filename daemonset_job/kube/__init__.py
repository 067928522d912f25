"""Kubernetes for any program: client, caches, leader election, recorder of events.

Layer: above ``runtime``. It knows no Job, and decides nothing.
"""
