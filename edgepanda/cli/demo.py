"""`demo`: the main job on one machine, with real processes and simulated pins."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgepanda.cli.audit import show_proof
from edgepanda.cli.broker import URL_LINE
from edgepanda.cli.common import Settings, command, quiet
from edgepanda.cli.exits import FAILED, INTERRUPTED, OK
from edgepanda.cli.follow import Followed, View, follow, live_view, show_result
from edgepanda.cli.init import make_site
from edgepanda.cli.out import emit, say
from edgepanda.cli.supervisor import Child, stop_all
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient
    from edgepanda.wire.requests import TaskView

ANGLE = 30.0  # degrees
CRITERION = "position within 1 degree"
READY_WITHIN = 30.0  # seconds
LOOK_EVERY = 0.05


class _Notes:
    """Keeps what the processes printed, for when something goes wrong."""

    def __init__(self, log_file: Path) -> None:
        self._log_file = log_file

    def line(self, name: str, text: str) -> None:
        with self._log_file.open("a", encoding="utf-8") as file:
            file.write(f"{name:<11} | {text}\n")

    def happened(self, name: str, what: str, detail: str = "") -> None:
        self.line(name, f"{what} {detail}".rstrip())


@command(
    "demo",
    timeout_help="How long everything may take (default: 60s).",
    examples="edgepanda demo\nedgepanda demo --json\nedgepanda demo --keep",
)
@click.option("--keep", is_flag=True, help="Leave the folder with configuration, ledger and log.")
def demo_command(settings: Settings, keep: bool) -> int:
    """Show the main job on this machine.

    Starts a broker, a coordinator and a node with a servo on simulated pins, in a folder of its own; submits a move
    with a criterion, shows what happens, the evidence and the ledger's proof. It leaves nothing running and no files.
    """
    quiet(settings)
    folder = Path(tempfile.mkdtemp(prefix="edgepanda-demo-"))
    began = time.monotonic()
    try:
        view, proof = asyncio.run(_guarded(_demo(settings, folder), settings.timeout or 60.0))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED
    except EdgePandaError:
        if settings.verbose and (folder / "log").exists():
            click.echo((folder / "log").read_text(), err=True)
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - began
    good = view.state == "succeeded" and proof["ok"]
    if settings.json:
        kept = {"folder": str(folder)} if keep else {}
        emit({"ok": good, "task": msgspec.to_builtins(view), "proof": proof, "seconds": round(seconds, 2), **kept})
        return OK if good else FAILED
    say()
    say(f"All of it took {seconds:.1f} s. " + ("" if keep else "Nothing is left running, and no file is left."))
    if keep:
        say(f"The folder is {folder}; look at its ledger with:")
        say(f"  edgepanda audit verify --offline --config {folder}/edgepanda.toml")
    say("Next: edgepanda init, then edgepanda up")
    return OK if good else FAILED


async def _guarded(work: Any, seconds: float) -> tuple[TaskView, dict[str, Any]]:
    """Within its time; SIGTERM ends it like Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 a coroutine always runs in one
    for sign in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, task.cancel)
    try:
        async with asyncio.timeout(seconds):
            result: tuple[TaskView, dict[str, Any]] = await work
            return result
    except TimeoutError:
        raise EdgePandaError(
            f"not done within {seconds:g} s",
            code="timeout",
            where="demo",
            cure="run it again with -v to see what the processes said",
        ) from None


async def _demo(settings: Settings, folder: Path) -> tuple[TaskView, dict[str, Any]]:
    notes = _Notes(folder / "log")
    children: list[Child] = []
    try:
        with live_view(settings.json, "starting a broker, a coordinator and a node ...") as view:
            client = await _start(folder, notes, children, view)
            async with client:
                await _servo_ready(client, folder)
                view.line("node     desk, with the servo 'pan' on simulated pins, publishes its card and claims work")
                view.line("")
                view.line(f'$ edgepanda submit servo.move angle={ANGLE:g} --criterion "{CRITERION}" --wait')
                done, proof = await _move_and_prove(client, view)
    finally:
        await stop_all(children)
    if not settings.json:
        show_result(done)
        say()
        say("$ edgepanda audit verify")
        show_proof(proof)
    return done, proof


async def _start(folder: Path, notes: _Notes, children: list[Child], view: View) -> AsyncClient:
    """Broker first, on a port that the system chooses; then the rest with a configuration that names it."""
    (folder / "broker.toml").write_text('[broker]\nlisten = "127.0.0.1:0"\n')
    broker = Child("broker", ["broker", "run", "--config", str(folder / "broker.toml")], notes)
    children.append(broker)
    await broker.start()
    url = broker.told[URL_LINE.rstrip("=")]
    view.line(f"broker   {url}, the embedded one, on loopback only")
    config = folder / "edgepanda.toml"
    operator_key = folder / "operator.key"
    make_site(config, name="desk", site="demo", broker=url, operator_key=operator_key)
    rest = [Child(name, [name, "--config", str(config)], notes) for name in ("coordinator", "node")]
    children.extend(rest)
    await asyncio.gather(*(child.start() for child in rest))
    view.line("site     demo: its coordinator keeps a new ledger")
    return _client(config, operator_key)


def _client(config: Path, operator_key: Path) -> AsyncClient:
    from edgepanda.client import AsyncClient, site_key
    from edgepanda.model.config import load_config
    from edgepanda.trust.identity import Identity

    loaded = load_config(config)
    site = loaded.config.site
    return AsyncClient(
        loaded.broker_address(),
        site=site.name,
        base=site.base,
        site_key=site_key(loaded),
        identity=Identity.load(operator_key),
        watch=True,
    )


async def _servo_ready(client: AsyncClient, folder: Path) -> None:
    """Wait for the card. Raises what keeps the servo from working."""
    device: dict[str, Any] = {}
    try:
        async with asyncio.timeout(READY_WITHIN):
            while True:
                known = {node["name"]: node for node in await client.nodes()}
                if known.get("desk", {}).get("claiming"):
                    card = (await client.node("desk")).get("card") or {}
                    device = card.get("devices", {}).get("pan", {})
                    if device.get("state") == "ready":
                        return
                    if device.get("state") == "unavailable":
                        break
                await asyncio.sleep(LOOK_EVERY)
    except TimeoutError:
        pass
    reason = device.get("reason") or "the node did not publish its card in time"
    cure = device.get("cure") or "run it again with -v to see what the processes said"
    raise EdgePandaError(f"the servo cannot be used: {reason}", code="unavailable", where="desk/pan", cure=cure)


async def _move_and_prove(client: AsyncClient, view: View) -> tuple[TaskView, dict[str, Any]]:
    from edgepanda.model.ids import new_id

    task_id = new_id()
    work = client.run("servo.move", {"angle": ANGLE}, id=task_id, criteria=[CRITERION], goal="show the main job")
    done = await follow(client, Followed(task_id), view, work)
    view.status("asking the witnesses, checking the ledger ...")
    return done, await client.verify()
