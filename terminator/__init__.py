"""The terminator: reads the tasks' logs, keeps the ledger, and deletes the Jobs that are done.

Imports ``daemonset_job`` and never ``job_controller``: the count on which a Job is deleted is made
twice, by two programs that share no code for it.
"""
