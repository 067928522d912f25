"""Sends notifications of runs to the administrator's receivers."""
