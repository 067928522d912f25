"""Decisions: pure functions of a snapshot and the current time.

Layer: above api, below everything that acts. Standard library only; no clock, no asyncio, no
logger. Nothing here knows how a snapshot is gathered or how a plan is carried out.
"""
