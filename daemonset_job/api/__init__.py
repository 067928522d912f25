"""What a Job and a JobReport are: names, frozen types, parse and serialise.

Layer: the bottom one. Standard library only; no clock, no asyncio, no logger, no environment.
"""
