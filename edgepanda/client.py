"""The Python client: everything that a program may ask of a site.

    async with AsyncClient.from_config() as client:
        task = await client.submit("servo.move", {"angle": 30}, criteria=["position within 1 degree"])
        print((await client.wait(task["id"])).state)

`Client` has the same methods without `await`. Every method raises `EdgePandaError` with a stable code: those of the
coordinator, `broker_unreachable` and its kin from the link, and `no_answer`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import BrokerAddress
from edgepanda.model.config import Loaded, find_config, load_config
from edgepanda.model.ids import new_id
from edgepanda.model.stops import LONGEST_REASON
from edgepanda.model.task import Limits
from edgepanda.trust.identity import Identity, KeyFileError, decode_key
from edgepanda.trust.peers import Directory, Peer, PeerList, vouch
from edgepanda.trust.release import sign_release
from edgepanda.wire import messages, requests, topics
from edgepanda.wire.bus import Bus, Message
from edgepanda.wire.requests import LONGEST_WAIT, LogPage, TaskView

ANSWER_WITHIN = 10.0  # seconds for one request
CONNECT_WITHIN = 5.0
WAIT_AGAIN = 1.0  # seconds before a wait is asked for again which the coordinator had no room for

T = TypeVar("T")


def operator_key_path() -> Path:
    """Where a person's operator key is: `$EDGEPANDA_KEY`, or in the user's data folder."""
    named = os.environ.get("EDGEPANDA_KEY")
    if named:
        return Path(named)
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return data / "edgepanda" / "operator.key"


def site_key(loaded: Loaded) -> bytes:
    """The site's public key: from the configuration, or from the private key on the coordinator's machine.

    Raises `EdgePandaError` (`site_key_missing`).
    """
    if loaded.config.site.key:
        return decode_key(loaded.config.site.key)
    try:
        return Identity.load(loaded.keys_dir / "site.key").public
    except KeyFileError as error:
        if error.code != "key_unreadable":
            raise
        raise EdgePandaError(
            f"the site's key is not known here: {error.message} {error.where}",
            code="site_key_missing",
            where=f"{loaded.path}: site.key",
            cure='write the public key there: key = "ed25519:..."; `edgepanda init` prints it where the site was made',
        ) from error


class Counter:
    """A number that rises with every request of a key, also over restarts: microseconds, made to rise by a file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._last = 0

    def next(self) -> int:
        """The next one. Without a file (a key in memory) it rises within this process."""
        now = time.time_ns() // 1000
        if self._path is None:
            self._last = max(self._last + 1, now)
            return self._last
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read().strip()
            value = max(int(text) + 1 if text.isdigit() else 0, now)
            file.seek(0)
            file.truncate()
            file.write(str(value))
        return value


async def say_plain_stop(loaded: Loaded, reason: str, *, within: float) -> None:
    """Stop the site without a key, as anyone may. Raises `EdgePandaError` when the broker cannot be had."""
    site = loaded.config.site
    nobody = Identity.create()
    bus = Bus(loaded.broker_address(), nobody, Directory(nobody.public), site=site.name, base=site.base, process="o")
    bus.start()
    try:
        async with asyncio.timeout(within):
            await bus.link.tried.wait()
        if not bus.up:
            raise bus.link.last_error or TimeoutError
        bus.say_plain(topics.STOP, reason or "no reason given")
        await bus.link.flush()
    except TimeoutError:
        raise EdgePandaError(
            "the broker does not answer",
            code="broker_unreachable",
            where=f"{loaded.path}: broker",
            cure="the local socket of each machine's node stops that node: `edgepanda stop` there",
        ) from None
    finally:
        await bus.stop()


class AsyncClient:
    """A client on an asyncio loop; use it as an async context manager."""

    def __init__(
        self,
        address: BrokerAddress,
        *,
        site: str,
        site_key: bytes,
        identity: Identity,
        base: str = "edgepanda",
        counter: Counter | None = None,
        answer_within: float = ANSWER_WITHIN,
        watch: bool = False,
    ) -> None:
        """`watch`: take in the ledger's events too, for `watch()`."""
        self._watch = watch
        self.identity = identity
        self._answer_within = answer_within
        self._address = address
        self._site, self._base, self._site_key = site, base, site_key
        self._counter = counter or Counter(None)
        self._waiting: dict[
            str, tuple[str, asyncio.Future[Any]]
        ] = {}  # by request: which node was asked, or "" the site
        self._watchers: list[asyncio.Queue[messages.Event]] = []
        self._bus: Bus | None = None
        self._node_bus: Bus | None = None  # made when a node is asked: a broker may let a program hear the site alone
        self._meeting = asyncio.Lock()
        self._directory = Directory(site_key)  # with the nodes that were asked something
        self._nodes: dict[str, tuple[Peer, int]] = {}  # their keys, and the start that is asked

    @property
    def site(self) -> str:
        """The site's name."""
        return self._site

    @classmethod
    def from_config(
        cls, path: str | None = None, *, answer_within: float = ANSWER_WITHIN, watch: bool = False
    ) -> AsyncClient:
        """A client for the site of a configuration file, with the operator's key of this user."""
        return cls.from_loaded(load_config(find_config(path)), answer_within=answer_within, watch=watch)

    @classmethod
    def from_loaded(cls, loaded: Loaded, *, answer_within: float = ANSWER_WITHIN, watch: bool = False) -> AsyncClient:
        """The same for a configuration that was read already."""
        key_path = operator_key_path()
        if not key_path.exists():
            raise EdgePandaError(
                "you have no key for this site",
                code="operator_key_missing",
                where=str(key_path),
                cure="ask where the site's operator works, or name a key with EDGEPANDA_KEY"
                if loaded.config.site.key
                else "`edgepanda init` makes one, or name one with EDGEPANDA_KEY",
            )
        site = loaded.config.site
        return cls(
            loaded.broker_address(),
            site=site.name,
            base=site.base,
            site_key=site_key(loaded),
            identity=Identity.load(key_path),
            counter=Counter(key_path.with_suffix(".counter")),
            answer_within=answer_within,
            watch=watch,
        )

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect. Raises `LinkError` when the broker cannot be had."""
        bus = self._new_bus()
        bus.subscribe(topics.REPLY, self._on_reply, client=self.identity.kid)
        if self._watch:
            bus.subscribe(topics.EVENTS, self._on_event)
        self._bus = await self._started(bus)

    def _new_bus(self) -> Bus:
        return Bus(
            self._address,
            self.identity,
            self._directory,
            site=self._site,
            base=self._base,
            process="o",
            several=True,
        )

    async def _started(self, bus: Bus) -> Bus:
        bus.start()
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                await bus.link.tried.wait()
        except TimeoutError:
            pass
        if not bus.up:
            error = bus.link.last_error or EdgePandaError(
                "the broker does not answer", code="broker_unreachable", where=str(self._address)
            )
            await bus.stop()
            raise error
        return bus

    async def close(self) -> None:
        """Hang up; may be called twice."""
        buses, self._bus, self._node_bus = (self._bus, self._node_bus), None, None
        self._nodes.clear()
        for bus in buses:
            if bus is not None:
                await bus.stop()

    # the way of a request

    async def request(self, method: str, params: msgspec.Struct | None = None, *, within: float | None = None) -> Any:
        """Ask the coordinator; repeated until it answers. Raises what it answers, or `no_answer`."""
        future = self.begin(method, params)
        return await self._answer(future, method, within or self._answer_within)

    def begin(self, method: str, params: msgspec.Struct | None = None) -> asyncio.Future[Any]:
        """Send a request now; the future gets its answer. Requests begun in one turn travel together."""
        changes = requests.METHODS[method][2]
        body = messages.Request(
            id=new_id(),
            method=method,
            params=msgspec.to_builtins(params) if params is not None else {},
            counter=self._counter.next() if changes else None,
        )
        return self._deliver(topics.REQUEST, body)

    def _deliver(self, topic: topics.Topic, body: messages.Request, **names: str) -> asyncio.Future[Any]:
        bus = self._connected(self._node_bus if topic is topics.NODE_REQUEST else self._bus)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[body.id] = (names.get("node", ""), future)
        future.add_done_callback(lambda _f: self._forget(body.id))
        bus.deliver(topic, body, **names)
        return future

    def _connected(self, bus: Bus | None) -> Bus:
        if bus is None:
            raise EdgePandaError(
                "this client is not connected",
                code="broker_unreachable",
                where=str(self._address),
                cure="use it within `with Client(...)` or `async with AsyncClient(...)`",
            )
        return bus

    async def _answer(self, future: asyncio.Future[Any], method: str, within: float, node: str = "") -> Any:
        try:
            async with asyncio.timeout(within):
                return await future
        except TimeoutError:
            raise EdgePandaError(
                f"no answer to {method}{f' of the node {node}' if node else ''} within {within:g} s",
                code="no_answer",
                where=str(self._address),
                cure="`edgepanda nodes` says when it was last heard; --timeout waits longer"
                if node
                else "is the coordinator running, and does it know your key?",
            ) from None

    async def ask_node(
        self, node: str, method: str, params: msgspec.Struct | None = None, *, within: float | None = None
    ) -> Any:
        """Ask a node itself, as an operator: one of `requests.NODE_METHODS`.

        Raises what it answers, `no_answer`, and at once `unknown_node` and `node_away`, which the coordinator tells.
        """
        within = within or self._answer_within
        given = msgspec.to_builtins(params) if params is not None else {}
        for last in (False, False, True):
            async with self._meeting:
                peer, start = self._nodes.get(node) or await self._meet(node)
            body = messages.Request(
                id=new_id(), method=method, params=given, counter=self._counter.next(), incarnation=start
            )
            future = self._deliver(topics.NODE_REQUEST, body, node=node, client=self.identity.kid)
            try:
                return await self._answer(future, method, within, node)
            except EdgePandaError as error:
                self._nodes.pop(node, None)
                if last or error.code not in ("node_restarted", "counter_used"):
                    raise
                if error.code == "node_restarted":  # nothing was done; it says itself which start it is
                    self._nodes[node] = (peer, int(error.details.get("incarnation", 0)))
        raise AssertionError("unreachable")

    async def _meet(self, node: str) -> tuple[Peer, int]:
        """The node's key, by which its answers are known, and its newest start. Only the coordinator is believed."""
        known = await self.node(node)
        if not known["online"]:
            raise EdgePandaError(
                f"the node {node} is away",
                code="node_away",
                where=node,
                cure="`edgepanda nodes` says when it was last heard; is it switched on?",
            )
        if self._node_bus is None:
            bus = self._new_bus()
            bus.subscribe(topics.NODE_REPLY, self._on_reply, client=self.identity.kid)
            self._node_bus = await self._started(bus)
        peer = Peer(key=known.get("key", ""), name=node, role="node")
        self._nodes[node] = (peer, known.get("incarnation", 0))
        peers = tuple(each for each, _ in self._nodes.values())
        self._directory.replace(PeerList(site=self._site, revision=0, peers=peers))
        return self._nodes[node]

    def _forget(self, request_id: str) -> None:
        self._waiting.pop(request_id, None)
        for bus in (self._bus, self._node_bus):
            if bus is not None:
                bus.settle((request_id,))

    def _on_reply(self, message: Message) -> None:
        body = message.body
        asked, future = self._waiting.get(body.id, ("", None)) if isinstance(body, messages.Reply) else ("", None)
        answers = message.name if message.topic is topics.NODE_REPLY else ""
        if future is None or future.done() or answers != asked:
            return
        if body.error is not None:
            future.set_exception(EdgePandaError.from_dict(body.error.data))
        else:
            future.set_result(body.result)

    def _on_event(self, message: Message) -> None:
        for queue in self._watchers:
            if queue.full():
                queue.get_nowait()  # a slow watcher misses the oldest
            queue.put_nowait(message.body)

    # tasks

    def _submit(
        self,
        capability: str | None,
        args: dict[str, Any] | None,
        *,
        id: str | None = None,
        device: str | None = None,
        action: str | None = None,
        node: str | None = None,
        labels: dict[str, str] | None = None,
        goal: str = "",
        constraints: Sequence[str] = (),
        criteria: Sequence[str] = (),
        limits: Limits | None = None,
        priority: int = 0,
        door: str = "command",
    ) -> requests.Submit:
        return requests.Submit(
            id=id or new_id(),
            capability=capability,
            device=device,
            action=action,
            args=args or {},
            node=node,
            labels=labels or {},
            goal=goal,
            constraints=tuple(constraints),
            criteria=tuple(criteria),
            limits=limits or Limits(),
            priority=priority,
            door=door,
        )

    async def submit(
        self, capability: str | None = None, args: dict[str, Any] | None = None, **rest: Any
    ) -> dict[str, Any]:
        """Submit a task: a capability (or `device` and `action`) and its arguments. Returns when the ledger has it.

        Further keywords: `id` (idempotency key), `node`, `labels`, `goal`, `constraints`, `criteria`, `limits`,
        `priority`. Gives `id`, `state`, `capability`, `duplicate`.
        """
        result: dict[str, Any] = await self.request("task.submit", self._submit(capability, args, **rest))
        return result

    async def run(
        self,
        capability: str | None = None,
        args: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        **rest: Any,
    ) -> TaskView:
        """Submit a task and wait until it has ended or needs a person, at most `timeout` seconds."""
        submit = self._submit(capability, args, **rest)
        submitted = self.begin("task.submit", submit)
        hold = LONGEST_WAIT if timeout is None else min(timeout, LONGEST_WAIT)
        waiting = self.begin("task.wait", requests.Wait(id=submit.id, timeout=hold))
        try:
            await self._answer(submitted, "task.submit", self._answer_within)
            return await self.wait(submit.id, timeout=timeout, begun=waiting)
        finally:
            waiting.cancel()

    async def wait(
        self, task_id: str, *, timeout: float | None = None, begun: asyncio.Future[Any] | None = None
    ) -> TaskView:
        """Wait until a task has ended or needs a person. After `timeout` seconds gives it as it stands."""
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        while True:
            hold = LONGEST_WAIT if end is None else max(0.0, min(LONGEST_WAIT, end - loop.time()))
            future = begun or self.begin("task.wait", requests.Wait(id=task_id, timeout=hold))
            begun = None
            try:
                answer = await self._answer(future, "task.wait", hold + self._answer_within)
            except EdgePandaError as error:
                if error.code != "busy" or (end is not None and loop.time() >= end):
                    raise
                await asyncio.sleep(WAIT_AGAIN)  # this client waits for very many tasks: its turn comes
                continue
            view = msgspec.convert(answer, TaskView)
            if view.ended or view.needs_person or (end is not None and loop.time() >= end):
                return view

    async def get(self, task_id: str) -> TaskView:
        """One task."""
        return msgspec.convert(await self.request("task.get", requests.ById(id=task_id)), TaskView)

    async def list(
        self,
        *,
        states: Sequence[str] = (),
        capability: str | None = None,
        node: str | None = None,
        before: int | None = None,
        limit: int = 50,
        **more: Any,
    ) -> dict[str, Any]:
        """Tasks, newest first: `tasks`, and `next` to go on with as `before`; `more` as in `requests.ListTasks`."""
        params = requests.ListTasks(
            states=tuple(states), capability=capability, node=node, before=before, limit=limit, **more
        )
        result: dict[str, Any] = await self.request("task.list", params)
        return result

    async def events(self, task_id: str | None = None, *, after: int = 0, limit: int = 50) -> dict[str, Any]:
        """The ledger's entries, of one task or all: `events`, and whether there are `more`."""
        params = requests.Events(id=task_id, after=after, limit=limit)
        result: dict[str, Any] = await self.request("task.events", params)
        return result

    async def output(self, task_id: str) -> dict[str, Any]:
        """What a command printed, head and tail: `lines`."""
        result: dict[str, Any] = await self.request("task.output", requests.ById(id=task_id))
        return result

    async def cancel(self, task_id: str, because: str = "") -> dict[str, Any]:
        """Ask for a task to end."""
        result: dict[str, Any] = await self.request("task.cancel", requests.Cancel(id=task_id, because=because))
        return result

    async def resolve(self, task_id: str, outcome: str, because: str) -> dict[str, Any]:
        """Say what became of an uncertain task: `succeeded`, `failed` or `retry`, and how you know."""
        params = msgspec.convert({"id": task_id, "outcome": outcome, "because": because}, requests.Resolve)
        result: dict[str, Any] = await self.request("task.resolve", params)
        return result

    async def review(self, task_id: str, verdict: str, because: str = "") -> dict[str, Any]:
        """Say of a task that waits for review: `accept`, `again` or `reject`."""
        params = msgspec.convert({"id": task_id, "verdict": verdict, "because": because}, requests.Review)
        result: dict[str, Any] = await self.request("task.review", params)
        return result

    async def watch(self) -> AsyncIterator[messages.Event]:
        """The ledger's entries as they are committed, and progress (`seq` 0), until the caller stops.

        The client must have been made with `watch`, so that nothing is missed between a submit and this call.
        """
        queue: asyncio.Queue[messages.Event] = asyncio.Queue(maxsize=10_000)
        self._watchers.append(queue)
        try:
            while True:
                event = await queue.get()
                if isinstance(event, messages.Event):
                    yield event
        finally:
            self._watchers.remove(queue)

    # the site

    async def nodes(self) -> Any:
        """All nodes, without their cards: a list of `NodeView`s as plain values."""
        return (await self.request("node.list"))["nodes"]

    async def node(self, name: str) -> dict[str, Any]:
        """One node with its card."""
        result: dict[str, Any] = await self.request("node.get", requests.ByName(name=name))
        return result

    async def rename_node(self, name: str, to: str) -> dict[str, Any]:
        """Give a node another name; it takes it by itself, as soon as it is there."""
        result: dict[str, Any] = await self.request("node.rename", requests.Rename(name=name, to=to))
        return result

    async def logs(self, node: str, asked: requests.Logs, *, within: float | None = None) -> LogPage:
        """A page of the node's log: see `requests.Logs`."""
        hold = (within or self._answer_within) + asked.wait
        return msgspec.convert(await self.ask_node(node, "logs", asked, within=hold), LogPage)

    async def digest(self) -> dict[str, Any]:
        """The site at a glance."""
        result: dict[str, Any] = await self.request("digest")
        return result

    async def verify(self) -> dict[str, Any]:
        """Let the coordinator check the ledger's chain against its witnesses."""
        result: dict[str, Any] = await self.request("ledger.verify", within=300.0)
        return result

    async def stop(self, reason: str = "", *, stop_id: str = "") -> str:
        """Stop everything at the site, now: said to all nodes and to the coordinator at once. Gives the stop's id.

        Returns when the broker has it; `stops` tells who obeys.
        """
        stop_id = stop_id or new_id()
        bus = self._connected(self._bus)
        bus.retain(topics.STOP, messages.EmergencyStop(id=stop_id, reason=reason[:LONGEST_REASON]))
        await bus.link.flush()
        return stop_id

    async def stops(self) -> dict[str, Any]:
        """The emergency stops in force: `site` and, by name, `nodes`, each with `kid` and `stops`."""
        result: dict[str, Any] = await self.request("stop.list")
        return result

    async def release(self, ids: Mapping[str, Sequence[str]], because: str = "") -> dict[str, Any]:
        """Release these stops, by the key id of the node (or the site) that has them in force. Needs an operator's
        key, which signs each. The answer is as that of `stops`; a node that is away is told when it comes.
        """
        parts = {kid: self.signed_release(kid, some) for kid, some in ids.items()}
        result: dict[str, Any] = await self.request("stop.release", requests.Release(parts=parts, because=because))
        return result

    def signed_release(self, kid: str, ids: Sequence[str]) -> requests.ReleaseParams:
        """The release of these stops at one node, as its local socket takes it too."""
        proof = sign_release(self.identity, self._site, kid, ids)
        return requests.ReleaseParams(ids=tuple(ids), by=self.identity.kid, proof=proof)

    async def peers(self) -> dict[str, Any]:
        """The site's list of peers."""
        result: dict[str, Any] = await self.request("peers.list")
        return result

    async def add_peer(self, peer: Peer) -> dict[str, Any]:
        """Let a peer in. For an operator this client's own key vouches."""
        if peer.role == "operator":
            peer = vouch(self.identity, self._site, peer)
        result: dict[str, Any] = await self.request("peers.add", requests.AddPeer(peer=peer))
        return result

    async def remove_peer(self, name: str) -> dict[str, Any]:
        """Let a peer in no longer."""
        result: dict[str, Any] = await self.request("peers.remove", requests.ByName(name=name))
        return result


class Client:
    """The same without `await`: its own loop on a thread of its own. Use it as a context manager."""

    def __init__(self, inner: AsyncClient) -> None:
        self._inner = inner
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="edgepanda-client", daemon=True)

    @classmethod
    def from_config(
        cls, path: str | None = None, *, answer_within: float = ANSWER_WITHIN, watch: bool = False
    ) -> Client:
        """See `AsyncClient.from_config`."""
        return cls(AsyncClient.from_config(path, answer_within=answer_within, watch=watch))

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._do(self._inner.connect())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(EdgePandaError):
            self._do(self._inner.close())
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def submit(self, capability: str | None = None, args: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
        """See `AsyncClient.submit`."""
        return self._do(self._inner.submit(capability, args, **rest))

    def run(self, capability: str | None = None, args: dict[str, Any] | None = None, **rest: Any) -> TaskView:
        """See `AsyncClient.run`."""
        return self._do(self._inner.run(capability, args, **rest))

    def wait(self, task_id: str, *, timeout: float | None = None) -> TaskView:
        """See `AsyncClient.wait`."""
        return self._do(self._inner.wait(task_id, timeout=timeout))

    def get(self, task_id: str) -> TaskView:
        """See `AsyncClient.get`."""
        return self._do(self._inner.get(task_id))

    def list(self, **filters: Any) -> dict[str, Any]:
        """See `AsyncClient.list`."""
        return self._do(self._inner.list(**filters))

    def events(self, task_id: str | None = None, *, after: int = 0, limit: int = 50) -> dict[str, Any]:
        """See `AsyncClient.events`."""
        return self._do(self._inner.events(task_id, after=after, limit=limit))

    def output(self, task_id: str) -> dict[str, Any]:
        """See `AsyncClient.output`."""
        return self._do(self._inner.output(task_id))

    def cancel(self, task_id: str, because: str = "") -> dict[str, Any]:
        """See `AsyncClient.cancel`."""
        return self._do(self._inner.cancel(task_id, because))

    def resolve(self, task_id: str, outcome: str, because: str) -> dict[str, Any]:
        """See `AsyncClient.resolve`."""
        return self._do(self._inner.resolve(task_id, outcome, because))

    def review(self, task_id: str, verdict: str, because: str = "") -> dict[str, Any]:
        """See `AsyncClient.review`."""
        return self._do(self._inner.review(task_id, verdict, because))

    def watch(self) -> Iterator[messages.Event]:
        """See `AsyncClient.watch`."""
        events = self._inner.watch()
        try:
            while True:
                yield self._do(anext(events))  # type: ignore[arg-type]
        finally:
            self._do(events.aclose())  # type: ignore[attr-defined]

    def nodes(self) -> Any:
        """See `AsyncClient.nodes`."""
        return self._do(self._inner.nodes())

    def node(self, name: str) -> dict[str, Any]:
        """See `AsyncClient.node`."""
        return self._do(self._inner.node(name))

    def rename_node(self, name: str, to: str) -> dict[str, Any]:
        """See `AsyncClient.rename_node`."""
        return self._do(self._inner.rename_node(name, to))

    def ask_node(self, node: str, method: str, params: msgspec.Struct | None = None) -> Any:
        """See `AsyncClient.ask_node`."""
        return self._do(self._inner.ask_node(node, method, params))

    def logs(self, node: str, asked: requests.Logs) -> LogPage:
        """See `AsyncClient.logs`."""
        return self._do(self._inner.logs(node, asked))

    def digest(self) -> dict[str, Any]:
        """See `AsyncClient.digest`."""
        return self._do(self._inner.digest())

    def verify(self) -> dict[str, Any]:
        """See `AsyncClient.verify`."""
        return self._do(self._inner.verify())

    def stop(self, reason: str = "") -> str:
        """See `AsyncClient.stop`."""
        return self._do(self._inner.stop(reason))

    def stops(self) -> dict[str, Any]:
        """See `AsyncClient.stops`."""
        return self._do(self._inner.stops())

    def release(self, ids: Mapping[str, Sequence[str]], because: str = "") -> dict[str, Any]:
        """See `AsyncClient.release`."""
        return self._do(self._inner.release(ids, because))

    def peers(self) -> dict[str, Any]:
        """See `AsyncClient.peers`."""
        return self._do(self._inner.peers())

    def add_peer(self, peer: Peer) -> dict[str, Any]:
        """See `AsyncClient.add_peer`."""
        return self._do(self._inner.add_peer(peer))

    def remove_peer(self, name: str) -> dict[str, Any]:
        """See `AsyncClient.remove_peer`."""
        return self._do(self._inner.remove_peer(name))
