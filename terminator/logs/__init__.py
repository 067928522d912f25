"""Reading the tasks' logs: which log is read when, and what its lines mean.

Pure modules (no asyncio, no clock, no logger, no HTTP): matcher, log_parser, findings,
report_limits, tail_read, backward_read, instance_log, read_policy, attempts, read_budget,
stream_state, stream_slots. The scanner and its helpers send the requests.
"""
