"""What must hold at every moment, judged by the model's own truth and not by any cache.

1. Completion (`completion`): the controller calls a Job Complete, and the terminator deletes it,
   only when every node that its user asked for is done. A failed Job goes only for its ttl.
2. Starts (`starts`): a node's task is not started by another pod once its completion stands in the
   ledger. Excused: `window`, the pod was made without the gate before the gate was due (see
   `gates`); `stale read`, its gate was opened on a reading of the ledger made before the entry.
   While a Job says that it is suspended, no pod of it is made without the gate.
3. Evidence (`evidence`): it is true, never changed or lost, and results (see `results`) are whole.
   Excused as `former node`: the token of a node made again is entered for the one before, whose UID
   is the only one that the terminator's watch has brought (mended as soon as it knows better). And
   as `unseen`: of a task that printed the token twice, the one has replaced the other, which a
   process that died had sent and its successor could not have seen, or the other way round.
4. Conditions and times follow the API's conventions (`conventions`); ends are final; the report is
   told first.
5. No write changes nothing, unless the writer's cache was behind.
6. Counts (`records`): without churn of nodes, the number of completed ones never goes down.
7. Blame (`records`): only what failed is called failed. Excused as `grace`: a token that the
   terminator could not read within the controller's grace, because of its own or the logs' trouble.
8. Each node stands in one shard of its run's report, and nothing of one Job in another's
   (`shards`).
"""

from tests.simulation.oracle.core import Oracle
from tests.simulation.oracle.facts import is_true, owned_by

__all__ = ["Oracle", "is_true", "owned_by"]
