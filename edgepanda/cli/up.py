"""`up`: all processes that the configuration enables, in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from edgepanda import sdnotify
from edgepanda.cli.common import Settings, command
from edgepanda.cli.local import LocalNode
from edgepanda.cli.out import emit, hint, say
from edgepanda.cli.process import at_terminal
from edgepanda.cli.supervisor import Child, stop_all
from edgepanda.errors import EdgePandaError
from edgepanda.model.config import load_config
from edgepanda.storage import FileLock, StorageError, make_folder

if TYPE_CHECKING:
    from edgepanda.model.config import Loaded

END_WITHIN = 10.0  # seconds that a process gets to end
SETTLED_WITHIN = 10.0  # seconds in which a node meets its coordinator and knows its devices
LOOK_EVERY = 0.1
_WORDS = {"broker": ("broker", "run")}  # where a process has another command than its name


class _Printer:
    """Says what happens: lines with the process's name in front, or JSON."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json

    def line(self, name: str, text: str) -> None:
        if self._json:
            emit({"at": time.time(), "process": name, "event": "line", "text": text})
        else:
            say(f"{click.style(f'{name:<11}', dim=True)} | {text}")

    def happened(self, name: str, what: str, detail: str = "") -> None:
        if self._json:
            emit({"at": time.time(), "process": name, "event": what, "detail": detail})
        elif what == "ending":
            say("ending: the node first, so that its devices go to their safe state")
        elif what in ("restarting", "killed"):
            say(f"{name:<11} | {click.style(what, fg='yellow')}: {detail}")


@command(
    "up",
    timeout_help="",
    examples="edgepanda up\nedgepanda up --config ./edgepanda.toml\nedgepanda up --json",
    returns="Exit codes: 0 ended by SIGTERM or Ctrl-C, 1 one of the processes could not start, 2 the configuration.",
)
def up_command(settings: Settings) -> int:
    """Start all that the configuration enables, in the foreground, and stop it together.

    The embedded broker where [broker] names no url, the coordinator with [coordinator], the node with [node]. A process
    that dies is started again. Ctrl-C ends them: first the node, whose devices go to their safe state, then the rest.
    """
    loaded = settings.load()
    wanted = planned(loaded)
    with _alone(loaded):
        return asyncio.run(_up(settings, loaded, wanted))


@contextlib.contextmanager
def _alone(loaded: Loaded) -> Iterator[None]:
    """Nobody else starts the processes of this configuration meanwhile. Raises `EdgePandaError` (`already_running`)."""
    make_folder(loaded.run_dir)
    lock = FileLock(loaded.run_dir / "up")
    try:
        lock.acquire()
    except StorageError as error:
        if error.code != "storage_locked":
            raise
        pid = error.details["pid"]
        raise EdgePandaError(
            f"this site is running already: `edgepanda up` is process {pid}",
            code="already_running",
            where=str(loaded.path),
            cure=f"`edgepanda status` shows how it stands; Ctrl-C where it runs ends it, or `kill {pid}`",
            details={"pid": pid},
        ) from error
    try:
        yield
    finally:
        lock.release()


def planned(loaded: Loaded) -> list[str]:
    """The processes that a configuration enables, in the order of their start. Raises `EdgePandaError`."""
    config = loaded.config
    wanted = {
        "broker": config.broker.embedded,
        "coordinator": config.coordinator is not None,
        "node": config.node is not None,
    }
    names = [name for name, enabled in wanted.items() if enabled]
    if names in ([], ["broker"]):
        raise EdgePandaError(
            "there is nothing to start",
            code="config_invalid",
            where=str(loaded.path),
            cure="add a table [coordinator] or [node]",
        )
    if "broker" in names and loaded.listen_address()[1] == 0:
        raise EdgePandaError(
            "with port 0 only the broker itself would know where it listens",
            code="config_invalid",
            where=f"{loaded.path}: broker.listen",
            cure='name a port, such as listen = "127.0.0.1:1883"',
        )
    return names


async def _up(settings: Settings, loaded: Loaded, wanted: list[str]) -> int:
    printer = _Printer(settings.json)
    words = ["--config", str(loaded.path.absolute()), *(["-v"] if settings.verbose else [])]
    drain = loaded.config.node.drain if loaded.config.node else 0.0
    children = [
        Child(
            name,
            [*_WORDS.get(name, (name,)), *words],
            printer,
            end_within=END_WITHIN + (drain if name == "node" else 0.0),
        )
        for name in wanted
    ]
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 a coroutine always runs in one
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            printer.happened("up", "ending")
            task.cancel()

    def hangup() -> None:
        if at_terminal():
            stop()
        else:
            _reload(children, loaded)

    loop = asyncio.get_running_loop()
    for sign, handler in ((signal.SIGINT, stop), (signal.SIGTERM, stop), (signal.SIGHUP, hangup)):
        loop.add_signal_handler(sign, handler)
    try:
        for child in children:
            await child.start()
        trouble = await _node_settled(loaded) if loaded.config.node else ""
        _ready(settings, loaded, children, trouble)
        dog = asyncio.create_task(sdnotify.feed_watchdog())
        await asyncio.gather(*(child.wait() for child in children), dog)
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if not stopped:
            raise
    finally:
        sdnotify.notify("STOPPING=1")
        await stop_all(children)
    return 0


def _reload(children: list[Child], running: Loaded) -> None:
    """Hand SIGHUP on to whom it concerns; each says what it takes up. Which processes there are is ours to say."""
    for child in children:
        if child.name != "broker" and child.ready.is_set():
            child.hangup()
    try:
        now = planned(load_config(running.path))
    except EdgePandaError:
        return  # the processes say what is wrong
    if now != [child.name for child in children]:
        hint(f"the configuration asks for other processes now ({', '.join(now)}): start `edgepanda up` again for that")


async def _node_settled(loaded: Loaded) -> str:
    """Returns when the node has met its coordinator and knows its devices, or after a while with what it lacks."""
    node, trouble = LocalNode.of(loaded), "its node does not answer"
    for _ in range(int(SETTLED_WITHIN / LOOK_EVERY)):
        with contextlib.suppress(EdgePandaError):
            status = await node.request("status", {}, within=SETTLED_WITHIN)
            card = status["card"] or {}
            things = [*card.get("devices", {}).values(), *card.get("capabilities", {}).values()]
            probing = any(thing.get("state", "probing") == "probing" for thing in things)
            if status["accepted"] and not probing:
                return ""
            if status["problem"]:
                problem = EdgePandaError.from_dict(status["problem"])
                alone = problem.code == "not_let_in"
                return str(problem) if alone else f"its node does not obey this coordinator: {problem}"
            refused = status["broker_error"]
            trouble = refused["message"] if refused else "its node has no coordinator yet"
            if status["coordinator"]:
                trouble = (
                    "the coordinator does not answer its node yet: has an operator let it in (`edgepanda nodes add`)?"
                )
            if status["accepted"]:
                trouble = "its node still looks at its devices"
        await asyncio.sleep(LOOK_EVERY)
    return trouble


def _ready(settings: Settings, loaded: Loaded, children: list[Child], trouble: str) -> None:
    sdnotify.notify("READY=1")
    if settings.json:
        pids = {child.name: child.pid for child in children}
        emit(
            {
                "at": time.time(),
                "process": "up",
                "event": "ready",
                "pid": os.getpid(),
                "processes": pids,
                "lacks": trouble,
            }
        )
        return
    names = ", ".join(child.name for child in children)
    say(click.style(f"ready: {names}", fg="green") + (f", but {trouble}" if trouble else ""))
    option = "" if loaded.path.name == str(loaded.path) else f" --config {loaded.path}"
    say(f"Next, in another terminal: edgepanda card{option}   (what there is to do)")
    say("Ctrl-C ends all of it.")
