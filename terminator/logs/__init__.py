"""Reading the tasks' logs: which log is read when, and what stands in it.

Pure modules (no asyncio, no clock, no logger, no HTTP): matcher, log_parser, tail_read,
read_policy, read_budget, known, shares. The scanner and its helpers do the reading.
"""
