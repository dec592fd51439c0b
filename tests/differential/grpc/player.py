"""Plays a case on one broker: what its clients ask, and what is seen of the answers.

Names, ids, clocks and addresses are written as what they are, so that two brokers may be compared: see `Reader`.
"""

import asyncio
import base64
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from google.protobuf.json_format import MessageToDict

from lockstep.protocol.grpc import messages as pb
from lockstep.remoting.host.runtime import Runtime
from tests.broker.fronts.grpc.grpc_client import Calling, GrpcClient
from tests.differential.grpc.steps import (
    HALF_CLOSE,
    NO_REPLY_S,
    Ask,
    Case,
    Clock,
    Committed,
    Drain,
    Hear,
    Join,
    Leave,
    Resize,
    Step,
    Tell,
    Until,
    receive,
)
from tests.differential.reading import EXCEPTION

__all__ = ["Player", "Seen", "Site", "names_of", "play"]

ANSWER_S: Final = 15.0
FOREVER_S: Final = 40.0  # longer than every deadline
_REFERENCE: Final = re.compile(r"\$(handle|recall)\((\w+)(?:,(-?\d+))?\)")
_HANDLE: Final = re.compile(r"(-?\d+) \d+ (-?\d+) (\d+) (\d) (\S+) (-?\d+) (-?\d+)(?: -?\d+)*")
_JAVA: Final = re.compile(r"\b(?:java|com|org)\.[\w.$]+(?:Exception|Error)\b(?!: )|Exception\. |\bIllegal Capacity")
_PROXY: Final = "org.apache.rocketmq.proxy.common.ProxyException: "
_MASKS: Final = (
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+(:\d+)?"), "HOST"),
    (re.compile(r"\b1[78]\d{11}\b"), "TIME"),
    (re.compile(r"\b(?:7F000001|0A00000\d)[0-9A-F]{24}\b"), "OFFSET-ID"),
)
# What every client says; RocketMQ's proxy fails at some calls without.
_SAID: Final[Mapping[str, str]] = {"language": "JAVA", "protocol": "v2", "client_version": "5.2.0"}
_PUT_ASIDE: Final = "a place among timers or half messages"
_TIMES: Final = frozenset(("born_timestamp", "store_timestamp", "delivery_timestamp"))


class Site(Protocol):
    """A broker: where it is, and what is done beside gRPC."""

    runtime: Runtime
    address: str

    async def committed(self, topic: str, group: str) -> int | None: ...
    async def resize(self, topic: str, queues: int, message_type: str) -> None: ...


class Seen(NamedTuple):
    """What one broker showed of a case: an entry a step that is compared, and seconds where times are."""

    facts: list[Any]
    times_s: list[float]


def names_of(case: Case, number: int) -> tuple[str, str]:
    """Topic and group of the case when it is played for the `number`th time."""
    name = f"{case.kind}-{case.name}-{number}".replace(".", "_")
    return f"T-{name}", f"G-{name}"


async def play(case: Case, site: Site, number: int) -> Seen:
    """Play a case whose topic and group are there."""
    player = Player(case, site, number)
    try:
        for step in case.steps:
            await player.do(step)
    except LookupError as missing:
        player.seen.facts.append(f"not given: {missing}")
    finally:
        player.close()
    return player.seen


class Player:
    """The state of a case that is played."""

    def __init__(self, case: Case, site: Site, number: int) -> None:
        self.case, self.site = case, site
        self.topic, self.group = names_of(case, number)
        self.seen = Seen([], [])
        self.handles: dict[str, list[str]] = {}
        self.recalls: dict[str, str] = {}
        self.asked_ms: dict[int, str] = {}  # times that the case asks for
        self._clients: dict[str, GrpcClient] = {}
        self._telemetry: dict[str, tuple[Calling, int]] = {}  # and how many of its messages were read
        self._later: dict[str, tuple[Ask, asyncio.Task[Any]]] = {}
        self._reader = Reader(self)
        self._began_s = self._now_s()
        self._steps: dict[type, Callable[[Any], Awaitable[None]]] = {
            Ask: self._ask, Tell: self._tell, Hear: self._hear, Leave: self._leave, Join: self._join,
            Clock: self._clock, Until: self._until, Committed: self._committed, Drain: self._drain,
            Resize: self._resize,
        }  # fmt: skip

    async def do(self, step: Step) -> None:
        await self._steps[type(step)](step)

    def close(self) -> None:
        for _, task in self._later.values():
            task.cancel()
        for client in self._clients.values():
            client.close()

    # Times -------------------------------------------------------------------------------------------------------

    def _now_s(self) -> float:
        return self.site.runtime.monotonic_ns() / 1e9

    async def _clock(self, _: Clock) -> None:
        self._began_s = self._now_s()

    async def _until(self, step: Until) -> None:
        await asyncio.sleep(max(0.0, self._began_s + step.at_s - self._now_s()))

    def in_s(self, seconds: float) -> dict[str, int]:
        """A timestamp so many seconds from now."""
        at_ms = self.site.runtime.now_ms() + round(seconds * 1000)
        self.asked_ms[at_ms] = f"in {seconds:g} s"
        return {"seconds": at_ms // 1000, "nanos": at_ms % 1000 * 1_000_000}

    # Calls -------------------------------------------------------------------------------------------------------

    async def _client(self, name: str) -> GrpcClient:
        if name not in self._clients:
            client_id = f"{name}-{self.topic}" if name else ""
            self._clients[name] = await GrpcClient.connect(self.site.runtime, self.site.address, client_id)
        return self._clients[name]

    async def _ask(self, step: Ask) -> None:
        if step.later:
            self._later[step.later] = step, asyncio.create_task(self._call(step))
            return
        self._see(step, await self._call(step))

    async def _join(self, step: Join) -> None:
        asked, task = self._later.pop(step.later)
        self._see(asked, await task)

    async def _call(self, step: Ask) -> Calling:
        client = await self._client(step.client)
        request_type = getattr(pb, f"{step.method}Request", None)
        if request_type is None:
            data, response = b"", pb.QueryRouteResponse  # a call that is not served
        else:
            data = request_type(**self._filled(step.fields)).SerializeToString()
            response = getattr(pb, f"{step.method}Response")
        timeout_ms = None if step.timeout_s is None else round(step.timeout_s * 1000)
        call = client.begin(step.method, response, timeout_ms, **{**_SAID, **step.metadata})
        await client.write_all(call, data)
        await asyncio.wait((call.ended,), timeout=FOREVER_S)
        return call

    def _see(self, step: Ask, call: Calling) -> None:
        if step.timed:
            self.seen.times_s.append(round(self._now_s() - self._began_s, 2))
        fact = self._reader.answer(call, step)
        if step.seen:
            self.seen.facts.append(fact)
        elif not call.messages or call.messages[0].status.code != pb.OK:
            # What only prepares a case must be done: else the case shows nothing.
            raise LookupError(f"{step.method}: {fact}")

    def _filled(self, value: Any) -> Any:
        if callable(value):
            return self._filled(value(self))
        if isinstance(value, Mapping):
            return {name: self._filled(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self._filled(member) for member in value]
        if isinstance(value, str):
            value = value.replace("$topic", self.topic).replace("$group", self.group)
            return _REFERENCE.sub(lambda found: self._kept(*found.groups()), value)
        return value

    def _kept(self, kind: str, body: str, number: str | None) -> str:
        if kind == "recall":
            return self.recalls[body]
        return self.handles[body][-1 if number is None else int(number)]

    # Telemetry ---------------------------------------------------------------------------------------------------

    async def _tell(self, step: Tell) -> None:
        if step.client not in self._telemetry:
            client = await self._client(step.client)
            self._telemetry[step.client] = client.begin("Telemetry", pb.TelemetryCommand, None, **_SAID), 0
        call, _ = self._telemetry[step.client]
        call.send(pb.TelemetryCommand(**{step.command: self._filled(step.settings)}))
        fact = await self._next(step.client, NO_REPLY_S if step.silent else ANSWER_S)
        if step.seen:
            self.seen.facts.append(fact)

    async def _hear(self, step: Hear) -> None:
        fact = await self._next(step.client, step.within_s)
        self.seen.facts.append(fact)

    async def _next(self, client: str, within_s: float) -> Any:
        """The next command, the end of the stream, or "silence"."""
        call, number = self._telemetry[client]
        message = asyncio.ensure_future(call.message(number))
        try:
            await asyncio.wait((message, call.ended), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            if not message.done() and len(call.messages) <= number:
                return self._reader.end(call) if call.ended.done() else "silence"
            self._telemetry[client] = call, number + 1
            fact = self._reader.plain(call.messages[number])
            await asyncio.wait((call.ended,), timeout=0.2)
            return {**fact, "then": self._reader.end(call)} if call.ended.done() else fact
        finally:
            message.cancel()

    async def _leave(self, step: Leave) -> None:
        if step.how != HALF_CLOSE:
            self._clients.pop(step.client).close()
            return
        call, _ = self._telemetry[step.client]
        call.half_close()
        self.seen.facts.append(await self._next(step.client, NO_REPLY_S))

    async def _drain(self, step: Drain) -> None:
        queues: dict[str, int] = {}
        while len(queues) < step.messages:
            call = await self._call(receive(invisible_s=600))
            given = [one.message for one in call.messages if one.HasField("message")]
            if not given:
                break
            queues |= {one.body.decode(): one.system_properties.queue_id for one in given}
        self.seen.facts.append(" ".join(f"{body}:{queue}" for body, queue in sorted(queues.items())))

    # Beside gRPC -------------------------------------------------------------------------------------------------

    async def _committed(self, _: Committed) -> None:
        self.seen.facts.append(await self.site.committed(self.topic, self.group))

    async def _resize(self, step: Resize) -> None:
        await self.site.resize(self.topic, step.queues, self.case.message_type)


class Reader:
    """Answers as facts, without what each broker has of its own."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def end(self, call: Calling) -> str:
        code, text = call.status
        if not call.ended.done():
            return "no answer"
        return f"gRPC {code} {self._text(text)}".strip() if code else f"reset {call.reset}"

    def answer(self, call: Calling, step: Ask) -> Any:
        items = [self._item(one, whole=step.whole) for one in call.messages]
        if step.by_queue:
            queues = Counter(one.message.system_properties.queue_id for one in call.messages if one.HasField("message"))
            items = [items[0], f"so many of a queue: {sorted(queues.values())}"]
        if step.method == "SendMessage" and _is_put_aside(step) and isinstance(items[0], dict):
            for entry in items[0].get("entries", ()):
                entry["offset"] = _PUT_ASIDE
        if call.status != ("0", ""):
            items.append(self.end(call))
        return items[0] if len(items) == 1 else items

    def _item(self, item: Any, *, whole: bool) -> Any:
        if not isinstance(item, pb.ReceiveMessageResponse):
            for entry in getattr(item, "entries", ()):
                if getattr(entry, "recall_handle", ""):
                    self._player.recalls[entry.message_id] = entry.recall_handle
            if isinstance(item, pb.ChangeInvisibleDurationResponse) and item.receipt_handle:
                self._player.handles.setdefault("changed", []).append(item.receipt_handle)
            return self.plain(item)
        kind = item.WhichOneof("content")
        if kind == "status":
            return f"{item.status.code} {self._text(item.status.message)}"
        if kind == "delivery_timestamp":
            return "timestamp"
        given, system = item.message, item.message.system_properties
        body = given.body.decode("utf-8", "replace")[:32]
        self._player.handles.setdefault(body, []).append(system.receipt_handle)
        if whole:
            return self.plain(given)
        place = f"q{system.queue_id} o{system.queue_offset} x{system.delivery_attempt}"
        return f"{body} {place} [{self._handle(system.receipt_handle)}]"

    def plain(self, item: Any) -> dict[str, Any]:
        named: dict[str, Any] = self._named("", MessageToDict(item, preserving_proto_field_name=True))
        if asked := named.get("recover_orphaned_transaction_command"):
            asked["message"]["system_properties"]["queue_offset"] = _PUT_ASIDE
            # Before there is a producer to ask, a check may have come.
            asked["message"]["user_properties"]["TRANSACTION_CHECK_TIMES"] = "SOME"
        return named

    def _named(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._named(key, member) for key, member in value.items()}
        if isinstance(value, list):
            return [self._named(name, member) for member in value]
        if name in _TIMES:
            return self._time(value)
        if name == "port":
            return "PORT"
        if name == "receipt_handle":
            return self._handle(value)
        if name == "recall_handle":
            return self._text(base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).decode())
        return self._text(value) if isinstance(value, str) else value

    def _time(self, text: str) -> str:
        stamp = pb.Timestamp()
        stamp.FromJsonString(text)
        return self._player.asked_ms.get(stamp.seconds * 1000 + stamp.nanos // 1_000_000, "TIME")

    def _handle(self, text: str) -> str:
        """Without pop time and place in the log. Revive queues are taken in turn; 999 says that it is in order."""
        found = _HANDLE.fullmatch(text)
        if found is None:
            return text
        start, invisible, revive, kind, broker, queue, offset = found.groups()
        # One that was changed counts from the pop; when the message comes again shows how long it is.
        lasts = "CHANGED" if text in self._player.handles.get("changed", ()) else invisible
        return f"{start} {lasts} {revive if revive == '999' else 'R'} {kind} {broker} {queue} {offset}"

    def _text(self, text: str) -> str:
        if _JAVA.search(text.removeprefix(_PROXY)):
            return EXCEPTION
        text = text.replace(self._player.topic, "$topic").replace(self._player.group, "$group")
        for mask, kind in _MASKS:
            text = mask.sub(kind, text)
        return text


def _is_put_aside(step: Ask) -> bool:
    """Whether its messages wait somewhere else first."""
    systems = [one["system_properties"] for one in step.fields["messages"]]
    return any("delivery_timestamp" in one or one["message_type"] == "TRANSACTION" for one in systems)
