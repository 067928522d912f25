"""The only place with HTTP and raw JSON: client, caches, leader election, events.

Layer: may import ``job_controller.runtime`` and ``job_controller.api``; it decides nothing about
Jobs.
"""
