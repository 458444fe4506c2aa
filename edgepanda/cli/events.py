"""One line for each event of the ledger. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from edgepanda.cli.out import plain


def describe(kind: str, data: dict[str, Any], attempt: int | None = None) -> str:
    """What happened, for a person."""
    if kind in _LINES:
        text = _LINES[kind](data)
    else:
        rest = {key: value for key, value in data.items() if key != "state" and value not in ("", None)}
        text = f"{kind.replace('_', ' ')} {plain(rest)}".rstrip()
    state = data.get("state")
    if state and state not in text and kind not in ("submitted", "leased", "started", "permitted"):
        text += f" -> {state}"
    return f"{text} (attempt {attempt})" if attempt and kind == "leased" else text


def _submitted(data: dict[str, Any]) -> str:
    task = data.get("task", {})
    place = task.get("device") or ""
    words = [task.get("capability", ""), place, plain({k: v for k, v in task.get("args", {}).items() if v is not None})]
    return f"submitted by {task.get('by', '?')}: {' '.join(word for word in words if word)}"


def _finished(data: dict[str, Any]) -> str:
    result = data.get("result", {})
    why = result.get("narrative") or result.get("message") or data.get("code")
    unanswered = data.get("unanswered")
    text = f"finished: {data.get('outcome')}{f', {why}' if why else ''}"
    return f"{text}; unanswered: {', '.join(unanswered)}" if unanswered else text


def _interrupted(data: dict[str, Any]) -> str:
    known = data.get("known") or {}
    text = "cut short" + ("" if data.get("began") else " before it began")
    if known.get("reads") is not None:
        return f"{text}; it reads {plain(known['reads'])}"
    return f"{text}: {known['message']}" if known.get("message") else text


def _progress(data: dict[str, Any]) -> str:
    fraction = data.get("fraction")
    share = f"{fraction:.0%}" if isinstance(fraction, int | float) else ""
    return " ".join(word for word in (share, str(data.get("text", ""))) if word) or "under way"


def output_lines(lines: Iterable[str]) -> list[str]:
    """What a command printed, told apart from our own words."""
    return [f"  | {line}" for line in lines]


_LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "submitted": _submitted,
    "leased": lambda d: f"leased to {d.get('node', '?')}",
    "started": lambda d: "running",
    "permitted": lambda d: "running, with a permit",
    "declined": lambda d: f"{d.get('node', '?')} declined: {d.get('message') or d.get('code')}",
    "finished": _finished,
    "progress": _progress,
    "output": lambda d: "\n".join(output_lines(d.get("lines", ()))),
    "lost": lambda d: "the lease is over",
    "interrupted": _interrupted,
    "resolved": lambda d: f"{d.get('by', '?')} resolved it as {d.get('as', '?')}: {d.get('because', '')}",
    "expired": lambda d: f"expired: {d.get('limit', 'a limit')} was over",
    "cancel": lambda d: f"cancel asked by {d.get('by', '?')}" + (f": {d['because']}" if d.get("because") else ""),
    "epoch": lambda d: f"the coordinator started, epoch {d.get('epoch')}",
    "direct": lambda d: f"a direct command on {d.get('node', '?')}",
}
