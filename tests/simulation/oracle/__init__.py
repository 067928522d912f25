"""The invariants, checked at every moment against the model's own objects, not against a cache.

1. Completion (`completion`): the controller records a Job as Complete, and the terminator deletes
   it, only when every desired node is completed. A failed Job is deleted only after its TTL.
2. Starts (`starts`): once a node's completion is in the ledger, no other pod starts its task.
   Excused as `window`: the pod was made without the gate before the gate was due (see `gates`).
   Excused as `stale read`: its gate was removed after a read of the ledger older than the entry.
   While the status of a Job says that it is suspended, no pod of it is made without the gate.
3. Evidence (`evidence`): it is true, never changed or lost, and its results (see `results`) are
   complete. Excused as `former node`: a recreated node's token is recorded for the former node,
   while the terminator's watch has delivered only that one's UID. Excused as `unseen`: the task
   printed the token twice, and one of them has replaced the other, which an ended process had sent
   and its successor could not have seen.
4. Conditions and times follow the API's conventions (`conventions`). Ends are final. The report is
   written before the Job's status.
5. No write changes nothing, unless the writer's cache was stale.
6. Counts (`records`): while no nodes join or leave, the number of completed nodes never decreases.
7. Failures (`records`): only what has failed is recorded as failed. Excused as `grace`: the
   terminator could not read a token within the controller's grace period, because its own requests
   or the logs failed.
8. Each node is in one shard of its run's report, and no shard has nodes of another Job (`shards`).
"""

from tests.simulation.oracle.core import Oracle
from tests.simulation.oracle.facts import is_true, owned_by

__all__ = ["Oracle", "is_true", "owned_by"]
