"""Jobs that a Job creates as parts of its own run, and owns."""
