"""ScheduledJobs: when a run starts, which run is deleted, what the status says. Pure."""
