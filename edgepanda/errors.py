"""The one error type of the product, with a stable code.

Every error that reaches a person, a reply or a log is an `EdgePandaError` (or a subclass in the module that raises
it): a `code` that scripts may rely on, the `where` (file and key, topic, device, argument), what was found and
allowed (the message), and the `cure`: what to do next. Whoever raises one names the place; a cure of its own where it
knows more than the usual one of the code, which `error_codes.py` has.
"""

from __future__ import annotations

from typing import Any


class EdgePandaError(Exception):
    """An error with a stable code; `str()` gives one line for a person."""

    code = "internal"

    def __init__(
        self,
        message: str,
        *,
        where: str,
        code: str | None = None,
        cure: str = "",
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.message = message
        self.where = where
        self._cure = cure
        self.details = details or {}

    @property
    def cure(self) -> str:
        """The next step: what was said, or else the code's usual one."""
        if self._cure:
            return self._cure
        from edgepanda.error_codes import usual_cure

        return usual_cure(self.code)

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        cure = f"; {self.cure}" if self.cure else ""
        return f"{self.message}{place}{cure}"

    def lines(self) -> list[str]:
        """What a person reads: a line for each thing that is wrong."""
        return [f"{self} [{self.code}]"]

    def as_dict(self) -> dict[str, Any]:
        """The form that travels in replies and in `--json`: code, message, and where, cure, details if present."""
        parts = {"where": self.where, "cure": self.cure, "details": self.details}
        return {"code": self.code, "message": self.message, **{k: v for k, v in parts.items() if v}}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> EdgePandaError:
        """The error that `as_dict` described."""
        return EdgePandaError(
            str(data.get("message", "")),
            code=str(data.get("code", "internal")),
            where=str(data.get("where", "")),
            cure=str(data.get("cure", "")),
            details=data.get("details") if isinstance(data.get("details"), dict) else None,
        )
