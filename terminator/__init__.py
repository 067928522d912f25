"""The terminator: reads the tasks' logs, keeps the ledger, and deletes the Jobs that are done.

Pure modules (no asyncio, no clock, no logger, no HTTP): pattern, automaton, token, stream, tail,
reading, ending, entries. Shell around them: scanner, ledger, watch, config, reload, main.
Imports ``job_controller.{api,kube,runtime}`` and never ``core``: the count on which a Job is
deleted is made twice, by two programs that share no code for it.
"""
