"""The embedded broker's certificate, and when a file of its has changed."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from edgepanda.errors import EdgePandaError

log = logging.getLogger("edgepanda.broker")


def stamp(path: Path) -> tuple[int, int, int] | None:
    """Differs once the file was written or replaced; None while there is none."""
    try:
        now = path.stat()
    except OSError:
        return None
    return now.st_mtime_ns, now.st_size, now.st_ino


class Certificate:
    """A server's certificate with its key; `context` is for new connections, also after a renewal."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Reads both. Raises `EdgePandaError` (`broker_certificate`)."""
        self._certificate, self._key = certificate, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._stamps = self._seen()
        self._load(self.context)

    def refresh(self) -> None:
        """Take up a new certificate, if it can be used; else the present one stays, which is logged."""
        if (seen := self._seen()) == self._stamps:
            return
        self._stamps = seen
        try:
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load(self.context)
        except EdgePandaError as error:
            log.error("the certificate stays as it was: %s", error)
        else:
            log.info("the certificate was read again")

    def _seen(self) -> tuple[object, object]:
        return stamp(self._certificate), stamp(self._key)

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except (OSError, ssl.SSLError, ValueError) as error:
            missing = next((path for path in (self._certificate, self._key) if not path.exists()), None)
            reason = "there is no such file" if missing else getattr(error, "reason", None) or error.strerror or error  # type: ignore[union-attr]
            raise EdgePandaError(
                f"the broker's certificate cannot be used: {reason}",
                code="broker_certificate",
                where=str(missing or f"{self._certificate}, {self._key}"),
                cure="both must be PEM files that belong together and may be read; the key without a password",
            ) from error
