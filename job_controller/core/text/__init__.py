"""Texts: lists of names made short, and what others wrote made safe to show."""
