"""Asks the brokers every half second or two and feeds the collector. A broker that is gone does not stop the others.

A task a broker reads its journal of owners and its lock table; one more task reads the groups. Pages never wait for
them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from lockstep.client.admin.budget import AnswerTooLargeError
from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.groups import GroupProgress, LockCursor, merged_members
from lockstep.client.admin.tolerance import FAILURES
from lockstep.client.errors import ClientError
from lockstep.console.bounds import LOOK_BYTES_MAX, NAMES_BYTES_MAX, READ_BYTES_MAX, TEXT_MAX
from lockstep.console.console import Console
from lockstep.console.group_names import GroupNames
from lockstep.console.model import BrokerState, GroupReading
from lockstep.protocol.bodies.admin import OffsetWrapper
from lockstep.protocol.bodies.broker import BrokerData
from lockstep.protocol.bodies.client import ConsumerConnection, ConsumerRunningInfo
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import is_retry_topic
from lockstep.remoting.errors import RequestRefused

__all__ = ["gather", "gather_once"]

_LOOK_S: Final = 0.5  # between two reads of a journal, while a page is open
_IDLE_LOOK_S: Final = 2.0
_TABLE_EVERY: Final = 2  # looks
_COUNT_EVERY: Final = 4  # looks
_GROUPS_S: Final = 2.0
_IDLE_GROUPS_S: Final = 10.0
_BROKERS_S: Final = 5.0
_PATIENCE_S: Final = 4.0  # for one look at a broker
_INFO_MS: Final = 1500  # for the answer of one member: a broker waits 10 s for it
_GROUPS_A_TURN: Final = 25
_INFOS_A_GROUP: Final = 32
_BROKERS_MAX: Final = 256
_UNNAMED_MS: Final = 900_000  # a broker that the name server does not name for so long is forgotten
_GROUPS_MAX: Final = 10_000
_AT_ONCE: Final = 4  # groups that are read at the same time

_NO_ANSWER: Final = "no answer"

_AskGroups = Callable[[], Awaitable[Mapping[str, Sequence[str]]]]


@dataclass
class _Watched:
    """One broker: what is known of it between two looks. `unnamed_ms`: since when the name server does not name it."""

    data: BrokerData
    cursor: LockCursor | None = None
    looks: int = 0
    is_lockstep: bool | None = None
    unnamed_ms: int | None = None
    task: "asyncio.Task[None] | None" = None


async def gather(console: Console) -> None:
    """Ask until the task is cancelled."""
    await _Gather(console).run()


async def gather_once(console: Console) -> None:
    """Ask each broker once, all its groups included: for a picture of a moment."""
    await _Gather(console).once()


class _Gather:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._collector = console.collector
        self._admin = console.client
        self._limits = console.collector.limits
        self._runtime = console.runtime
        self._watched: dict[str, _Watched] = {}
        self._next_group = 0

    async def run(self) -> None:
        tasks = [self._runtime.create_task(self._read_groups_on_and_on(), name="console groups")]
        try:
            while True:
                await self._find_brokers()
                for watched in self._watched.values():
                    if watched.task is None:
                        watched.task = self._runtime.create_task(
                            self._watch(watched), name=f"console {watched.data.broker_name}"
                        )
                await asyncio.sleep(_BROKERS_S if self._watched else _LOOK_S)
        finally:
            tasks += [watched.task for watched in self._watched.values() if watched.task is not None]
            for task in tasks:
                task.cancel()

    async def once(self) -> None:
        await self._find_brokers()
        await asyncio.gather(*map(self._look_or_fail, self._watched.values()))
        groups = await self._group_names()
        await self._read_groups(groups, list(groups))

    @property
    def _is_idle(self) -> bool:
        return not self._console.feed.clients_count

    # Brokers -------------------------------------------------------------------------------------------------

    async def _find_brokers(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                found = await self._admin.bounded(LOOK_BYTES_MAX).brokers()
        except AnswerTooLargeError as error:
            self._too_large(error, LOOK_BYTES_MAX)
            return
        except FAILURES:
            return  # the brokers that are known are asked on
        self._forget_unnamed({data.broker_name for data in found})
        is_full = False
        for data in found:
            if len(data.broker_name) > TEXT_MAX:
                self._limits.met("names", TEXT_MAX, self._runtime.now_ms(), self._console.cluster.name_server)
                continue
            if data.broker_name not in self._watched and len(self._watched) >= _BROKERS_MAX:
                is_full = True
                continue  # brokers that are watched may come after it
            watched = self._watched.setdefault(data.broker_name, _Watched(data))
            watched.data = data
        if is_full:
            self._limits.met("brokers", _BROKERS_MAX, self._runtime.now_ms())

    def _forget_unnamed(self, named: set[str]) -> None:
        now_ms = self._runtime.now_ms()
        for name, watched in list(self._watched.items()):
            if name in named:
                watched.unnamed_ms = None
            elif watched.unnamed_ms is None:
                watched.unnamed_ms = now_ms
            elif now_ms - watched.unnamed_ms >= _UNNAMED_MS:
                if watched.task is not None:
                    watched.task.cancel()
                del self._watched[name]
                self._collector.forget_broker(name)

    def _too_large(self, error: AnswerTooLargeError, bytes_max: int = READ_BYTES_MAX) -> None:
        self._limits.met("answers", bytes_max, self._runtime.now_ms(), str(error))

    async def _watch(self, watched: _Watched) -> None:
        while True:
            try:
                await self._look_or_fail(watched)
            except Exception as error:  # an error of ours: shown, and tried again
                self._failed(watched, f"{type(error).__name__}: {error}")
            self._console.feed.publish()
            await asyncio.sleep(_IDLE_LOOK_S if self._is_idle else _LOOK_S)

    async def _look_or_fail(self, watched: _Watched) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._look(watched)
        except FAILURES as error:
            if isinstance(error, AnswerTooLargeError):
                self._too_large(error, LOOK_BYTES_MAX)
            self._failed(watched, str(error) or _NO_ANSWER)

    def _failed(self, watched: _Watched, text: str) -> None:
        data = watched.data
        self._collector.broker_failed(data.broker_name, data.master_addr or "", text, self._runtime.now_ms())
        watched.is_lockstep = None
        watched.looks = 0

    async def _look(self, watched: _Watched) -> None:
        """Raises one of `FAILURES`."""
        data, collector, admin = watched.data, self._collector, self._admin.bounded(LOOK_BYTES_MAX)
        if data.master_addr is None:
            raise ClientError("it has no master")
        address = data.master_addr
        if watched.is_lockstep is None:
            watched.is_lockstep = await admin.is_lockstep(address)
        state = BrokerState(data.broker_name, address, watched.is_lockstep)
        if not watched.is_lockstep:
            runtime = await admin.broker_runtime(address)
            collector.broker_answered(state, self._runtime.now_ms())
            collector.broker_counted(data.broker_name, runtime, self._runtime.now_ms())
            return
        read = await admin.lock_changes_of(address, watched.cursor)
        watched.cursor = read.cursor
        now_ms = self._runtime.now_ms()
        state = state._replace(refused_count=read.refused_count, fenced_counts=read.fenced_counts)
        collector.broker_answered(state, now_ms)
        collector.changed(read.changes, read.ahead_ms, now_ms)
        if read.changes or watched.looks % _TABLE_EVERY == 0:
            rows = await self._lock_table(admin.at(data))
            collector.locked(data.broker_name, rows, self._runtime.now_ms())
            collector.turn(now_ms)
        if watched.looks % _COUNT_EVERY == 0:
            with suppress(RequestRefused):  # an account that may not ask this
                runtime = await admin.broker_runtime(address)
                collector.broker_counted(data.broker_name, runtime, self._runtime.now_ms())
        watched.looks += 1

    async def _lock_table(self, at: AdminClient) -> list[LockTableRow]:
        try:
            return await at.list_locks()
        except RequestRefused:  # too many for one answer: a group at a time
            rows: list[LockTableRow] = []
            for group in await at.groups():
                rows += await at.list_locks(group)
            return rows

    # Groups --------------------------------------------------------------------------------------------------

    async def _read_groups_on_and_on(self) -> None:
        while True:
            groups: dict[str, list[str]] = {}
            try:
                groups = await self._group_names()
                if groups:
                    await self._read_groups(groups, self._next_turn(list(groups)))
                    self._console.feed.publish()
            except Exception as error:  # an error of ours: told on stderr, and tried again
                context = {"message": "the groups cannot be read", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
            await asyncio.sleep(_LOOK_S if not groups else _IDLE_GROUPS_S if self._is_idle else _GROUPS_S)

    def _next_turn(self, names: Sequence[str]) -> list[str]:
        """Some of the groups, by turns."""
        start = self._next_group % len(names)
        chosen = [*names[start:], *names[:start]][:_GROUPS_A_TURN]
        self._next_group = start + len(chosen)
        return chosen

    async def _read_groups(self, groups: Mapping[str, Sequence[str]], chosen: Sequence[str]) -> None:
        limit = asyncio.Semaphore(_AT_ONCE)

        async def read(name: str) -> None:
            async with limit:
                await self._read_group(name, groups[name])

        await asyncio.gather(*map(read, chosen))

    def _live(self) -> list[_Watched]:
        """The brokers that answer."""
        return [
            watched
            for name, watched in self._watched.items()
            if watched.is_lockstep is not None and not self._collector.is_gone(name)
        ]

    def _who_names_groups(self, live: Sequence[_Watched]) -> list[tuple[str, _AskGroups]]:
        """Each broker, and the name server once for all of Apache's, by name. Each has a bound of its own."""
        asked: list[tuple[str, _AskGroups]] = []
        for watched in live:
            admin = self._admin.bounded(READ_BYTES_MAX).at(watched.data)
            ask = admin.groups if watched.is_lockstep else admin.groups_with_offsets
            asked.append((watched.data.broker_name, ask))
        if not all(watched.is_lockstep for watched in live):
            asked.append(
                (self._console.cluster.name_server, self._admin.bounded(READ_BYTES_MAX).groups_with_retry_topic)
            )
        return asked

    async def _group_names(self) -> dict[str, list[str]]:
        """Topics by group, of all brokers that answer; sorted. The collector gets to know who did not."""
        names = GroupNames(_GROUPS_MAX, NAMES_BYTES_MAX)
        live, is_whole = self._live(), True
        failed: dict[str, str] = {}

        async def read(name: str, ask: _AskGroups) -> None:
            nonlocal is_whole
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    names.add(await ask())
            except AnswerTooLargeError as error:
                self._too_large(error)
                is_whole = False
            except FAILURES as error:
                failed[name] = str(error) or _NO_ANSWER

        await asyncio.gather(*[read(name, ask) for name, ask in self._who_names_groups(live)])
        self._collector.groups_not_named(failed)
        if names.groups_left_out:
            self._limits.met("groups", _GROUPS_MAX, self._runtime.now_ms())
            is_whole = False
        if names.topics_left_out:
            self._limits.met("answers", NAMES_BYTES_MAX, self._runtime.now_ms(), "the topics of all groups")
        found = names.by_name()
        if live and is_whole and not failed and len(live) == len(self._watched):
            self._collector.forget_groups(found)
        return found

    async def _read_group(self, name: str, topics: Sequence[str]) -> None:
        bounded = self._admin.bounded(READ_BYTES_MAX)
        brokers = [watched.data for watched in self._watched.values()]
        live = {watched.data.broker_name for watched in self._live()}
        answers = await asyncio.gather(
            *[self._ask_about(bounded.at(broker), name, broker.broker_name in live) for broker in brokers]
        )
        if not any(isinstance(answer, tuple) for answer in answers):
            self._collector.group_silent(name, self._runtime.now_ms())
            return  # what was known stays: without an answer nothing says that members have left
        state = self._collector.groups.get(name)
        known_offsets = state.reading.offsets if state is not None else {}
        members: list[ConsumerConnection] = []
        offsets: dict[MessageQueue, OffsetWrapper] = {}
        infos: dict[str, ConsumerRunningInfo] = {}
        tps = 0.0
        for broker, answer in zip(brokers, answers, strict=True):
            if isinstance(answer, tuple):
                here, progress = answer
                offsets |= progress.offsets
                tps += progress.consume_tps
                if here is not None:
                    members.append(here)
                    asked = [one.client_id for one in here.connection_set if one.client_id not in infos]
                    infos |= await self._infos(bounded.at(broker), name, asked[:_INFOS_A_GROUP])
            elif not isinstance(answer, AnswerTooLargeError):  # what is known of its queues stays
                offsets |= {q: of for q, of in known_offsets.items() if q.broker_name == broker.broker_name}
        merged = merged_members(members)
        subscribed = merged.subscription_table if merged is not None else {}
        known = tuple(topic for topic in sorted({*topics, *subscribed}) if not is_retry_topic(topic))
        told = GroupReading(name, known, merged, infos, offsets, tps)
        is_whole = all(isinstance(answer, tuple) for answer in answers)
        self._collector.group(told, self._runtime.now_ms(), is_whole=is_whole)

    async def _ask_about(
        self, admin: AdminClient, group: str, is_live: bool
    ) -> tuple[ConsumerConnection | None, GroupProgress] | Exception:
        """What one broker knows of a group, or why it does not say. One that is gone is not asked."""
        if not is_live:
            return ClientError(_NO_ANSWER)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await admin.members(group), await admin.progress(group)
        except AnswerTooLargeError as error:
            self._too_large(error)
            return error
        except FAILURES as error:
            return error

    async def _infos(self, admin: AdminClient, group: str, client_ids: Sequence[str]) -> dict[str, ConsumerRunningInfo]:
        """Running info by client id. A member that is frozen, or of a make without it, is left out."""
        try:
            found = await admin.running_infos(group, client_ids, timeout_ms=_INFO_MS)
        except FAILURES:
            return {}
        large = next((one for one in found.values() if isinstance(one, AnswerTooLargeError)), None)
        if large is not None:
            self._too_large(large)
        infos = {name: one for name, one in found.items() if isinstance(one, ConsumerRunningInfo)}
        return {name: info._replace(jstack=None) for name, info in infos.items()}
