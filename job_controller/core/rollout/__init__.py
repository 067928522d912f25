"""Turns of nodes: which of them may start their task, and when."""
