"""A whole site in real processes: a coordinator and nodes around a broker, in a folder of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from edgepanda.client import AsyncClient
from edgepanda.coordinator.peers import PeersFile
from edgepanda.documents import Documents
from edgepanda.errors import EdgePandaError
from edgepanda.model.config import Loaded, load_config
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Directory, Peer, PeerList
from edgepanda.wire import topics
from edgepanda.wire.bus import Bus, Message

RECORDER = Path(__file__).with_name("recorder.py")
COORDINATOR = "coordinator"
PATIENCE = 15.0  # seconds within which a site is as it should be


class Site:
    """`nodes` maps a node's name to its part of the configuration (tables [node], [devices.*], [capabilities.*]).

    Each process has a configuration and a state folder of its own, as on machines of their own. A context manager: it
    starts everything, and ends what is left.
    """

    name = "home"

    def __init__(self, folder: Path, url: str, nodes: dict[str, str], *, lease_ttl: float = 30.0) -> None:
        self.folder, self.url = folder, url
        self.environment: dict[str, str] = {}  # variables that processes get from now on, beside ours
        self.operator = Identity.create()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.loaded: dict[str, Loaded] = {}
        head = f'[site]\nname = "{self.name}"\nbase = "b{os.getpid()}-{id(self) % 9973}"\n'
        self._write(COORDINATOR, head, f"[coordinator]\nlease_ttl = {lease_ttl}\n")
        self.site_key = Identity.load_or_create(self.loaded[COORDINATOR].keys_dir / "site.key")
        keyed = f'{head}key = "{encode_key(self.site_key.public)}"\n'
        for name, text in nodes.items():
            self._write(name, keyed, text)
        self._enrol(nodes)

    def _write(self, process: str, head: str, text: str) -> None:
        folder = self.folder / process
        folder.mkdir(parents=True)
        path = folder / "edgepanda.toml"
        path.write_text(f'{head}\n[broker]\nurl = "{self.url}"\n\n{text}')
        self.loaded[process] = load_config(path)

    def _enrol(self, nodes: dict[str, str]) -> None:
        peers = PeersFile(self.state(COORDINATOR) / "peers.json", self.name, self.site_key)
        peers.add(Peer(key=encode_key(self.operator.public), name="me", role="operator"))
        for name in nodes:
            key = Identity.load_or_create(self.loaded[name].keys_dir / "node.key").public
            peers.add(Peer(key=encode_key(key), name=name, role="node"))
        peers.close()

    # processes

    def __enter__(self) -> Self:
        for process in self.loaded:
            self.start(process)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(list(self._processes)):
            self.stop(process)
        if error is not None:
            for process in self.loaded:
                print(f"--- {process}\n{self.log(process)[-6000:]}")

    def start(self, process: str, command: str = "") -> None:
        """Start the coordinator or a node (or what `command` says); its log goes on in the same file."""
        command = command or ("coordinator" if process == COORDINATOR else "node")
        config = str(self.loaded[process].path)
        with (self.folder / process / "log").open("ab") as log:
            self._processes[process] = subprocess.Popen(
                [sys.executable, "-m", "edgepanda", command, "--config", config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
            )

    def stop(self, process: str, sign: signal.Signals = signal.SIGTERM) -> None:
        """End it, and wait for that."""
        running = self._processes.pop(process, None)
        if running is None:
            return
        running.send_signal(sign)
        try:
            running.wait(timeout=30)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()

    def kill(self, process: str) -> None:
        """As a power cut would, for this process alone."""
        self.stop(process, signal.SIGKILL)

    def ended(self, process: str) -> bool:
        """True if it has ended by itself."""
        return self._processes[process].poll() is not None

    def pid(self, process: str) -> int:
        """Of the process that runs now."""
        return self._processes[process].pid

    def state(self, process: str) -> Path:
        """Where it keeps its files."""
        return self.loaded[process].state_dir

    def log(self, process: str) -> str:
        """What it has printed so far."""
        path = self.folder / process / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    # what it does

    def client(self, *, watch: bool = False) -> AsyncClient:
        """An operator's client, not yet connected."""
        site = self.loaded[COORDINATOR].config.site
        return AsyncClient(
            self.loaded[COORDINATOR].broker_address(),
            site=site.name,
            base=site.base,
            site_key=self.site_key.public,
            identity=self.operator,
            watch=watch,
        )

    async def claiming(self, client: AsyncClient, *names: str, within: float = PATIENCE) -> None:
        """Returns when these nodes claim work."""
        end = time.monotonic() + within
        while True:
            try:
                if {n["name"] for n in await client.nodes() if n["claiming"]} >= set(names):
                    return
            except EdgePandaError as error:
                if error.code != "no_answer":
                    raise
            if time.monotonic() > end:
                raise AssertionError(f"{names} do not claim work: {await client.nodes()}")
            await asyncio.sleep(0.05)

    async def heard(self, pattern: topics.Topic, wanted: Callable[[Message], bool], act: Callable[[], None]) -> float:
        """Do something, and give the seconds until a wanted message is on the broker."""
        listener = Identity.create()
        directory = Directory(self.site_key.public)
        directory.replace(self._peer_list())
        came: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        up = asyncio.Event()

        def on_message(message: Message) -> None:
            if not message.retained and wanted(message) and not came.done():
                came.set_result(time.perf_counter())

        site = self.loaded[COORDINATOR].config.site
        bus = Bus(
            self.loaded[COORDINATOR].broker_address(),
            listener,
            directory,
            site=site.name,
            base=site.base,
            process="t",
            on_up=up.set,
        )
        bus.subscribe(pattern, on_message)
        bus.start()
        try:
            async with asyncio.timeout(PATIENCE):
                await up.wait()
                began = time.perf_counter()
                act()
                return await came - began
        finally:
            await bus.stop()

    async def restart_until_card(self, node: str) -> float:
        """Seconds from the start of the node's process to its card on the broker."""
        self.stop(node)
        return await self.heard(topics.CARD, lambda m: m.name == node, lambda: self.start(node))

    def _peer_list(self) -> PeerList:
        stored = Documents(self.state(COORDINATOR) / "peers.json").single("peers")
        return msgspec.convert({**(stored or {}), "site": self.name}, PeerList)


def faked_time(offset: str) -> dict[str, str]:
    """The variables with which libfaketime moves all clocks of a process, such as by `+1h`."""
    shown = subprocess.run(["faketime", "-f", offset, "env"], check=True, capture_output=True, text=True).stdout
    lines = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    return {name: lines[name] for name in ("LD_PRELOAD", "FAKETIME")}


class WallClocks:
    """The wall clocks of processes that get `environment`, moved while these run; their other clocks are left alone."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "wall-clocks"
        self.jump("+0")
        self.environment = {
            "LD_PRELOAD": faked_time("+0")["LD_PRELOAD"],
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def jump(self, offset: str) -> None:
        """From now on they are so far off, such as `+365d`; a reader never sees half of it."""
        new = self._file.with_suffix(".new")
        new.write_text(offset + "\n")
        new.replace(self._file)
