"""The client of the API server: the only modules with HTTP and raw JSON."""
