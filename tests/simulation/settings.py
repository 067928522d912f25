"""The settings of both programs in a run, in seconds."""

# Shorter than the defaults, so that a run with problems becomes quiet sooner.
POD_START_TIMEOUT_SECONDS = 30.0
NODE_UNREACHABLE_GRACE_PERIOD_SECONDS = 12.0
RESYNC_SECONDS = 60.0
