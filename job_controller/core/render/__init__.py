"""The status of Job and JobReport, and their messages."""
