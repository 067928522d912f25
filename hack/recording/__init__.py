"""The picture of a run in README: recorded on a real cluster, drawn from the recording."""
