"""amqtt's broker with the holes closed that were found in 0.12.1 (docs/decisions/0080-embedded-broker.md).

Every session is a clean one: nothing is kept for a client that is away, so memory stays bounded and nobody inherits a
session that he did not authenticate for.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from amqtt.broker import Broker, Server
from amqtt.contexts import Action
from amqtt.errors import MQTTError
from amqtt.mqtt.connack import BAD_USERNAME_PASSWORD, ConnackPacket
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.mqtt.protocol.handler import ProtocolHandler
from amqtt.session import Session
from amqtt.utils import gen_client_id

from edgepanda.services.broker_logins import LONGEST_WAIT, LoginPace
from edgepanda.services.broker_packets import PacketReader, PacketWriter

if TYPE_CHECKING:
    from edgepanda.services.broker_accounts import Accounts

MOST_WAITING = 200  # messages that were taken in and not passed on; then their senders wait
KEEPALIVE_FACTOR = 1.5  # MQTT 3.1.1, 3.1.2.10


def _step_back() -> None:
    """Hashing waits for whoever has messages to pass on: on Linux each thread has a niceness of its own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 5)


class _Handler(BrokerProtocolHandler):  # type: ignore[misc]  # amqtt has no types
    """Notices an end that comes before amqtt waits for it: everything, DISCONNECT too, may be here when it starts."""

    async def start(self) -> None:
        self._disconnect_waiter = self._ended = asyncio.get_running_loop().create_future()
        await ProtocolHandler.start(self)

    async def wait_disconnect(self) -> Any:
        return await self._ended


class HardenedBroker(Broker):  # type: ignore[misc]  # amqtt has no types
    """Authenticates before it touches a session, takes over properly, ends silent connections, checks filters."""

    def __init__(self, config: dict[str, Any], accounts: Accounts | None) -> None:
        """Without `accounts` everybody may do everything: for loopback."""
        super().__init__(config)
        self._accounts = accounts
        self._writers: dict[str, PacketWriter] = {}
        self._gone: dict[str, asyncio.Event] = {}
        self._pace = LoginPace()
        self._hasher = ThreadPoolExecutor(1, "broker-login", _step_back)
        self._hashing = asyncio.Lock()

    def cut_off(self, users: Collection[str]) -> None:
        """End the connections of these users; their wills go out."""
        for session, _ in list(self._sessions.values()):
            if session.username in users and (writer := self._writers.get(session.client_id)) is not None:
                writer.abort()

    async def shutdown(self) -> None:
        """As amqtt's, and the thread ends."""
        self._hasher.shutdown(wait=False, cancel_futures=True)
        await super().shutdown()

    async def _initialize_client_session(
        self, reader: PacketReader, writer: PacketWriter, remote_address: str, remote_port: int
    ) -> tuple[BrokerProtocolHandler, Session]:
        handler, session = await _Handler.init_from_connect(reader, writer, self.plugins_manager)
        if not await self._admits(session, remote_address):
            await ConnackPacket.build(0, BAD_USERNAME_PASSWORD).to_stream(writer)
            await writer.close()
            raise MQTTError("wrong user or password")
        session.client_id = session.client_id or gen_client_id()
        session.clean_session = True
        session.parent = 0
        reader.patience = session.keep_alive * KEEPALIVE_FACTOR if session.keep_alive else None
        session.keep_alive = 0  # amqtt's own timer would cut a packet in two
        taken_in = session.delivered_message_queue
        reader.crowded = lambda: self._broadcast_queue.qsize() + taken_in.qsize() > MOST_WAITING
        return handler, session

    async def _handle_client_session(
        self,
        reader: PacketReader,
        writer: PacketWriter,
        client_session: Session,
        handler: BrokerProtocolHandler,
        server: Server,
        listener_name: str,
    ) -> None:
        name = client_session.client_id
        while (gone := self._gone.get(name)) is not None:  # its will goes out before the new one is heard
            self._writers[name].abort()
            await gone.wait()
        self._gone[name] = gone = asyncio.Event()
        self._writers[name] = writer
        self._sessions[name] = (client_session, handler)
        try:
            client_session.transitions.connect()
            handler.attach(client_session, reader, writer)
            await handler.mqtt_connack_authorize(True)
            await handler.start()
            await self._client_message_loop(client_session, handler)
        finally:
            await self._stop_handler(handler)
            await self._delete_session(name)
            del self._gone[name], self._writers[name]
            gone.set()

    async def _admits(self, session: Session, address: str) -> bool:
        """Whether user and password are right. Hashing is not done on the loop, and not often for one address."""
        accounts, loop = self._accounts, asyncio.get_running_loop()
        if accounts is None or accounts.remembers(session.username, session.password):
            return True
        until = loop.time() + LONGEST_WAIT
        while loop.time() + (wait := self._pace.wait(address, loop.time())) <= until:
            await asyncio.sleep(wait)
            async with self._hashing:  # one after the other: how many were wrong is known before each
                if self._pace.wait(address, loop.time()):
                    continue  # another one from there took the try
                right = await loop.run_in_executor(self._hasher, accounts.check, session.username, session.password)
                if not right:
                    self._pace.wrong(address, loop.time())
                return right
        return False

    async def _topic_filtering(self, session: Session, topic: str, action: Action) -> bool:
        if self._accounts is None:
            return True
        if action is Action.PUBLISH:
            return self._accounts.may_publish(session.username, topic)
        return self._accounts.may_subscribe(session.username, topic)
