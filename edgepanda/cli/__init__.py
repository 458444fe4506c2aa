"""The command line. `--version` and `--help` are answered here, before anything large is imported."""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the command with these arguments (default: those of the process); gives the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["--version"]:
        from edgepanda import __version__

        print(f"edgepanda {__version__}")
        return 0
    if not words or words[0] in ("-h", "--help"):
        from edgepanda.cli.table import overview

        print(overview())
        return 0
    if words[:3] == ["completion", "words", "--"]:  # a shell asks, and a person waits for it while typing
        from edgepanda.cli import complete

        return complete.main(words[3:])
    from edgepanda.cli.app import run

    return run(words)
