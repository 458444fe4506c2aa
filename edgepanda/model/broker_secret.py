"""How a machine's own processes log in to its embedded broker when that wants passwords: nobody sets anything for it.

The password is made once, at random, and lies in the state folder, where only the account of these processes reads it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from edgepanda.errors import EdgePandaError

OWN_USER = "@local"  # no name that a user can be given


def own_password(path: Path) -> str:
    """The password in this file, which is made if there is none, with mode 0600. Whichever process is first makes it.

    Raises `EdgePandaError` (`broker_secret`).
    """
    from edgepanda.storage import StorageError, make_folder, write_durably

    try:
        if not path.exists():
            make_folder(path.parent)
            fresh = path.with_name(f".{path.name}.{os.getpid()}")
            write_durably(fresh, secrets.token_urlsafe(32).encode())
            with contextlib.suppress(FileExistsError):  # another process was first
                os.link(fresh, path)
            fresh.unlink()
        return path.read_text(encoding="ascii").strip()
    except (OSError, StorageError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EdgePandaError(
            f"the password of this machine's own processes cannot be read: {reason}",
            code="broker_secret",
            where=str(path),
            cure="use the account that runs `edgepanda up`, or set user and password_file in [broker]",
        ) from error
