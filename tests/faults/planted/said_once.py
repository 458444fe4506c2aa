"""What was not acknowledged is not said again."""

from edgepanda.wire.bus import Bus

Bus._resend = lambda self: None  # type: ignore[method-assign]
