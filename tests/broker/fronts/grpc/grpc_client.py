"""A client of RocketMQ 5 for tests: gRPC on h2 over any Runtime, so also over the simulator's network."""

import asyncio
from typing import Any, cast

import h2.config
import h2.connection
import h2.events
import h2.settings

from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.grpc.wire import MessageReader, encode_message
from lockstep.remoting.host.runtime import Runtime

__all__ = ["SERVICE", "Calling", "GrpcClient", "topic_of"]

SERVICE = "/apache.rocketmq.v2.MessagingService/"


def topic_of(name: str) -> pb.Resource:
    return pb.Resource(name=name)


class Calling:
    """A call under way. `messages` are those of the answer so far; `trailers` has its status at its end."""

    def __init__(self, client: "GrpcClient", stream_id: int, response: type[Any]) -> None:
        self._client = client
        self.stream_id = stream_id
        self._response = response
        self._reader = MessageReader(64 * 1024 * 1024)
        self.messages: list[Any] = []
        self.trailers: dict[str, str] = {}
        self.reset: int | None = None
        self.ended = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()

    def on_event(self, event: Any) -> None:
        if isinstance(event, h2.events.DataReceived):
            self.messages += [self._response.FromString(one) for one in self._reader.receive(event.data)]
        elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            self.trailers |= dict(cast("list[tuple[str, str]]", event.headers))
        elif isinstance(event, h2.events.StreamReset):
            self.reset = int(event.error_code)
            self._end()
        elif isinstance(event, h2.events.StreamEnded):
            self._end()
        self._changed.set()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    async def message(self, number: int = 0) -> Any:
        """The message with this number, when it is there."""
        while len(self.messages) <= number:
            self._changed.clear()
            await self._changed.wait()
        return self.messages[number]

    async def progress(self) -> bool:
        """Wait until more of the answer is there. Returns False when it has ended."""
        if not self.ended.done():
            self._changed.clear()
            await self._changed.wait()
        return not self.ended.done()

    def forget(self) -> None:
        """Nobody waits for it any more."""
        self._client.calls.pop(self.stream_id, None)

    def send(self, message: Any) -> None:
        self._client.write(self.stream_id, message, end=False)

    def half_close(self) -> None:
        self._client.h2.end_stream(self.stream_id)
        self._client.flush()

    def cancel(self) -> None:
        self._client.h2.reset_stream(self.stream_id, 8)
        self._client.flush()

    @property
    def status(self) -> tuple[str, str]:
        return self.trailers.get("grpc-status", ""), self.trailers.get("grpc-message", "")


class GrpcClient(asyncio.Protocol):
    """One connection. `client_id` goes with each call."""

    def __init__(self, client_id: str = "c1", *, window: int | None = None) -> None:
        self.client_id = client_id
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        if window is not None:
            self.h2.local_settings = h2.settings.Settings(
                client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
            )
        self.calls: dict[int, Calling] = {}
        self.goaway: int | None = None
        self.lost = False
        self.reads = 0
        self.grants_windows = True
        self.is_corked = False  # True: what is written waits for `flush`
        self.receives = True  # False: what comes is dropped
        self.transport: asyncio.Transport | None = None
        self.windowed = asyncio.Event()  # the broker has said how much it takes
        self.gone = asyncio.Event()  # the connection has ended

    @classmethod
    async def connect(cls, runtime: Runtime, address: str, client_id: str = "c1", **more: Any) -> "GrpcClient":
        host, _, port = address.rpartition(":")
        client = cls(client_id, **more)
        await runtime.create_connection(lambda: client, host, int(port))
        await client.windowed.wait()
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.h2.initiate_connection()
        self.flush()

    def data_received(self, data: bytes) -> None:
        if not self.receives:
            return
        self.reads += 1
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.ConnectionTerminated):
                self.goaway = int(event.error_code or 0)
            if isinstance(event, h2.events.WindowUpdated):
                self.windowed.set()
            if isinstance(event, h2.events.DataReceived) and self.grants_windows:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            call = self.calls.get(getattr(event, "stream_id", 0) or 0)
            if call is not None:
                call.on_event(event)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.windowed.set()
        self.gone.set()
        for call in self.calls.values():
            call._end()
            call._changed.set()

    @property
    def is_usable(self) -> bool:
        """Whether calls may be made on this connection."""
        is_open = self.transport is not None and not self.transport.is_closing()
        return is_open and not self.lost and self.goaway is None

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def flush(self) -> None:
        if self.transport is not None and not self.transport.is_closing() and not self.is_corked:
            self.transport.write(self.h2.data_to_send())

    def write(self, stream_id: int, message: Any, *, end: bool) -> None:
        data = encode_message(message if isinstance(message, bytes) else message.SerializeToString())
        while len(data) > 16_384:
            self.h2.send_data(stream_id, data[:16_384])
            data = data[16_384:]
        self.h2.send_data(stream_id, data, end_stream=end)
        self.flush()

    async def write_all(self, call: Calling, message: bytes) -> None:
        """The one message of a call, as fast as the broker's window allows."""
        data = encode_message(message)
        while data and not call.ended.done():
            room = min(self.h2.local_flow_control_window(call.stream_id), 16_384)
            if room:
                self.h2.send_data(call.stream_id, data[:room], end_stream=len(data) <= room)
                data = data[room:]
                self.flush()
            else:
                await asyncio.sleep(0.01)

    def begin(self, method: str, response: type[Any], timeout_ms: int | None = 6000, **metadata: str) -> Calling:
        """Open a call; messages follow."""
        stream_id = self.h2.get_next_available_stream_id()
        headers = [
            (":method", "POST"), (":scheme", "http"), (":path", SERVICE + method), (":authority", "broker"),
            ("te", "trailers"), ("content-type", "application/grpc"),
            *((f"x-mq-{name.replace('_', '-')}", value) for name, value in metadata.items()),
        ]  # fmt: skip
        if "client_id" not in metadata and self.client_id:
            headers.append(("x-mq-client-id", self.client_id))
        if timeout_ms is not None:
            headers.append(("grpc-timeout", f"{timeout_ms}m"))
        self.h2.send_headers(stream_id, headers)
        call = self.calls[stream_id] = Calling(self, stream_id, response)
        return call

    def start(self, method: str, request: Any, timeout_ms: int | None = 6000) -> Calling:
        """A call with one message."""
        call = self.begin(method, getattr(pb, f"{method}Response"), timeout_ms)
        self.write(call.stream_id, request, end=True)
        return call

    async def call(self, method: str, request: Any, timeout_ms: int | None = 6000) -> Any:
        """A call with one message and one answer."""
        call = self.start(method, request, timeout_ms)
        await call.ended
        assert call.status[0] == "0", call.trailers
        assert len(call.messages) == 1
        return call.messages[0]

    # What clients do ---------------------------------------------------------------------------------------------

    async def telemetry(self, settings: pb.Settings) -> Calling:
        """Open the stream, and wait for the answer to the settings."""
        call = self.begin("Telemetry", pb.TelemetryCommand, None)
        call.send(pb.TelemetryCommand(settings=settings))
        await call.message()
        return call

    async def consume(self, group: str, topic: str = "T", *, push: bool = False) -> Calling:
        settings = pb.Settings(client_type=pb.PUSH_CONSUMER if push else pb.SIMPLE_CONSUMER)
        settings.subscription.group.name = group
        settings.subscription.subscriptions.add().topic.name = topic
        return await self.telemetry(settings)

    async def send(self, topic: str, *bodies: bytes, group: str = "", **system: Any) -> pb.SendMessageResponse:
        """One request; message ids are the bodies."""
        request = pb.SendMessageRequest()
        for body in bodies:
            message = request.messages.add(topic=topic_of(topic), body=body)
            message.system_properties.message_id = body.decode("ascii", "replace")[:32] or "id"
            if group:
                message.system_properties.message_group = group
            message.system_properties.MergeFrom(pb.SystemProperties(**system))
        return cast("pb.SendMessageResponse", await self.call("SendMessage", request))

    async def send_long(self, topic: str, body_bytes: int) -> Calling:
        """A send of so many bytes, as fast as the broker's window allows."""
        request = pb.SendMessageRequest()
        message = request.messages.add(topic=topic_of(topic), body=bytes(body_bytes))
        message.system_properties.message_id = "long"
        call = self.begin("SendMessage", pb.SendMessageResponse)
        await self.write_all(call, request.SerializeToString())
        await call.ended
        return call

    def receiving(self, group: str, topic: str = "T", batch: int = 32, **fields: Any) -> Calling:
        """A receive of 10 s invisible time that waits for 5 s, unless `fields` say otherwise."""
        request = pb.ReceiveMessageRequest(batch_size=batch)
        request.group.name, request.message_queue.topic.name = group, topic
        request.invisible_duration.seconds, request.long_polling_timeout.seconds = 10, 5
        timeout_ms = fields.pop("timeout_ms", 15_000)
        request.MergeFrom(pb.ReceiveMessageRequest(**fields))
        return self.start("ReceiveMessage", request, timeout_ms)

    async def receive(self, group: str, topic: str = "T", batch: int = 32, **fields: Any) -> list[pb.Message]:
        """The messages of a receive."""
        call = self.receiving(group, topic, batch, **fields)
        await call.ended
        return [one.message for one in call.messages if one.HasField("message")]

    async def ack(self, group: str, *messages: pb.Message) -> pb.AckMessageResponse:
        request = pb.AckMessageRequest(group=topic_of(group), topic=messages[0].topic)
        for message in messages:
            system = message.system_properties
            request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        return cast("pb.AckMessageResponse", await self.call("AckMessage", request))
