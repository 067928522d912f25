"""Settings of the terminator's tests."""

import asyncio

# looptime's plugin asks the policy for a loop before each test, a synchronous one too. The first
# time, the policy makes one, which is never closed (ResourceWarning, an error here). After this
# line it answers that there is none.
asyncio.set_event_loop(None)
