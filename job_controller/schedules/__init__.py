"""ScheduledJobs: which of them a change concerns, one reconcile of one, and the writes.

They have a work queue and workers of their own, so that neither Jobs nor they delay each other.
"""
