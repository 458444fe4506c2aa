"""Nobody remembers which stops were released."""

import msgspec

from edgepanda import stops_file
from edgepanda.model import stops

released = stops.released


def forgetful(before: stops.Stops, ids: tuple[str, ...]) -> stops.Stops:
    return msgspec.structs.replace(released(before, ids), released=())


stops.released = forgetful
stops_file.released = forgetful
