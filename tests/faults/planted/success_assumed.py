"""A node that joins a site calls attempts that were cut short done, without looking."""

from edgepanda.errors import EdgePandaError
from edgepanda.model.task import Finished
from edgepanda.node.attempt import Attempt
from edgepanda.node.attempts import Attempts


def not_begun(self: Attempts, attempt: Attempt, error: EdgePandaError) -> Finished:
    evidence = ({"kind": "line", "line": "surely"},)
    return self._report(attempt, Finished(outcome="succeeded", evidence=evidence))


Attempts._not_begun = not_begun  # type: ignore[method-assign]
