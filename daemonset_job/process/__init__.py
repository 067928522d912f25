"""What the main function of every program needs: logging, probes and metrics over HTTP.

Layer: knows no Job. What is served over HTTP is bounded, see `http_limits`.
"""
