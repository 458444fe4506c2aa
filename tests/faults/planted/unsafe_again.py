"""An unsafe attempt whose lease is over goes back to the queue, as a safe one does."""

import msgspec

from edgepanda.model import states
from edgepanda.model.states import Kind, State

held = {State.RUNNING, State.WAITING_ANSWER}
kinds = {Kind.LOST, Kind.INTERRUPTED}
for key, rows in states._INDEX.items():
    if key[0] in held and key[1] in kinds:
        states._INDEX[key] = tuple(
            msgspec.structs.replace(row, to=State.QUEUED, fence="retire") if row.to is State.UNCERTAIN else row
            for row in rows
        )
