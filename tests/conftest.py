"""Settings of every ring."""

import asyncio

from hypothesis import settings

# looptime's plugin asks the policy for a loop before each test, a synchronous one too. The first
# time, the policy makes one, which nobody closes (ResourceWarning, an error here). After this line
# it answers that there is none.
asyncio.set_event_loop(None)

# Properties say what is true, not how fast: machines that run tests are busy.
settings.register_profile("project", deadline=None)
settings.load_profile("project")
