"""A node does not wait for the permit of an unsafe attempt."""

from edgepanda.model.ids import new_id
from edgepanda.node.attempt import Attempt
from edgepanda.node.attempts import Attempts
from edgepanda.wire import messages


async def get_permit(self: Attempts, attempt: Attempt) -> None:
    attempt.asked = True
    self._reporter.say(
        messages.Starting(id=new_id(), task=attempt.task.id, attempt=attempt.number, seq=attempt.next_seq())
    )


Attempts._get_permit = get_permit  # type: ignore[method-assign]
