"""`kubectl dsjob doctor`: is the system well, what may the user do, and which Jobs are stuck.

It only reads. What the user may not read is a finding of its own and no error.
"""
