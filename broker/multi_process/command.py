"""The process of `--brokers N`: it serves as name server, and starts, watches and ends the processes of the brokers."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from lockstep.broker.multi_process.pipe import Said
from lockstep.broker.multi_process.plan import Member, encode_member, local_host, name_server_config, plan
from lockstep.broker.multi_process.process import BrokerProcess
from lockstep.broker.multi_process.supervisor import END_WITHIN_MS, PORT_IN_USE, TELL_AFTER_MS, Action, Supervisor
from lockstep.broker.multi_process.topics import SharedTopics
from lockstep.broker.options import Options
from lockstep.broker.server import BrokerServer
from lockstep.remoting.host.runtime import Runtime, TimerHandle
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import Address

__all__ = ["ManyBrokers"]

# -P: a module of any name may be in the current folder, and none of them is ours.
_PROGRAM: Final = (sys.executable, "-P", "-m", "lockstep.broker")
# As shells have it: the program could not be run.
_NOT_STARTED: Final = 126


class ManyBrokers:
    """A name server in this process, and a process for each broker.

    The pipe to a broker's stdin ends with this process, however it ends, and the broker with the pipe.
    """

    def __init__(self, options: Options, arguments: Sequence[str], runtime: Runtime, log: EventLog) -> None:
        """Raises SettingError, StoreUnusable and OSError, as `plan` says.

        Args:
            arguments: Of the command line, for the processes of the brokers.
        """
        self._options = options
        self._arguments = arguments
        self._runtime = runtime
        self._log = log
        self._members = {member.name: member for member in plan(options, runtime.storage)}
        self._addresses: dict[str, dict[str, str]] = {}
        self._processes: dict[str, BrokerProcess] = {}
        self._timer: TimerHandle | None = None
        self._supervisor = Supervisor(list(self._members), runtime.now_ms())
        self._name_server: BrokerServer | None = None
        self._topics: SharedTopics | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._serving: asyncio.Future[bool] = asyncio.get_running_loop().create_future()  # False: all ended before

    @property
    def failure(self) -> str:
        """Why the brokers ended without being asked to, or not as asked, in one line; empty: they ended as asked."""
        return self._supervisor.failure

    @property
    def killed(self) -> bool:
        """Whether a broker did not end when it was asked to, and had to be killed."""
        return self._supervisor.killed

    def listening(self) -> dict[str, str]:
        """What listens where, as for a single broker, with commas between the brokers in their order."""
        found = {}
        for what in ("broker", "grpc", "name-server", "metrics"):
            addresses = [mine[what] for name in self._members if what in (mine := self._addresses.get(name, {}))]
            if what == "name-server" and self._name_server is not None:
                addresses = [self._name_server.name_server_address]
            if addresses:
                found[what] = ",".join(addresses)
        return found

    async def run(self, stopped: "asyncio.Future[int]", on_serving: Callable[[], None]) -> None:
        """Returns when all brokers have ended.

        Args:
            stopped: When it is done all end.
            on_serving: Called once, when all serve. All end when it fails.

        Raises:
            CannotListen: The name server's port.
            Exception: What `on_serving` raised.
        """
        config, first = self._options.config, next(iter(self._members.values()))
        if config.serve_name_server:
            self._name_server = BrokerServer(name_server_config(config, first.acl_file), self._runtime, self._log)
            await self._name_server.start()
            port = int(self._name_server.name_server_address.rpartition(":")[2])
            address = str(Address(local_host(config), port))
            self._members = {name: one._replace(name_servers=address) for name, one in self._members.items()}
        self._topics = SharedTopics(self._name_server.name_server if self._name_server is not None else None)
        try:
            stopped.add_done_callback(lambda _: self._stop())
            self._act()
            if await self._serving:
                on_serving()
            await self._ended
        finally:
            self._stop()
            await self._ended
            if self._name_server is not None:
                await self._name_server.shutdown()

    def _stop(self) -> None:
        self._supervisor.stop(self._runtime.now_ms())
        self._act()

    def _act(self) -> None:
        """Do what the supervisor wants now, and come back when something is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        supervisor, now_ms = self._supervisor, self._runtime.now_ms()
        for action, name in supervisor.tick(now_ms):
            self._tell(action, name)
            if action is Action.START:
                process = self._processes[name] = BrokerProcess(name, self._on_said, self._on_died)
                self._runtime.create_task(self._start(process), name=f"start {name}")
            elif action is not Action.TELL:
                self._processes[name].end(action)
        if supervisor.next_due_ms is not None:
            self._timer = self._runtime.call_later_ms(max(supervisor.next_due_ms - now_ms, 0), self._act)
        if supervisor.all_ended and not self._ended.done():
            self._ended.set_result(None)
            if not self._serving.done():
                self._serving.set_result(False)

    def _tell(self, action: Action, name: str) -> None:
        pid = self._processes[name].pid if name in self._processes else None
        if action is Action.TELL:
            self._log.warning(
                "broker_process_awaited", process=name, pid=pid, killed_in_ms=END_WITHIN_MS - TELL_AFTER_MS
            )
        elif action is Action.KILL:
            self._log.error("broker_process_killed", process=name, pid=pid, waited_ms=END_WITHIN_MS)

    async def _start(self, process: BrokerProcess) -> None:
        loop = asyncio.get_running_loop()
        member = self._members[process.name]
        command = (*_PROGRAM, *self._arguments, "--member", encode_member(member))
        try:
            await loop.subprocess_exec(lambda: process, *command, stderr=None, start_new_session=True)
        except OSError as error:
            self._log.error("broker_process_failed", process=member.name, reason=error.strerror or str(error))
            process.status = _NOT_STARTED
            self._on_died(process)
            return
        assert self._topics is not None
        process.greet(self._topics.of(member.name))
        self._log.info("broker_process_started", process=member.name, pid=process.pid)

    def _on_said(self, process: BrokerProcess, said: Said) -> None:
        assert self._topics is not None
        name = process.name
        if said.topics:
            self._topics.put(name, said.topics)
        self._topics.delete(name, said.deleted)
        if said.sent_to is not None:
            self._topics.spread(said.sent_to, list(self._members))
            for other in self._processes.values():
                other.say(Said(spread=True) if other is process else Said(topics=(said.sent_to,)))
        if said.listening:
            self._addresses[name] = said.listening
            self._members[name] = _at_its_ports(self._members[name], said.listening)
            self._supervisor.ready(name)
            if self._supervisor.all_serving and not self._serving.done():
                self._serving.set_result(True)

    def _on_died(self, process: BrokerProcess) -> None:
        assert process.status is not None
        delay_ms = self._supervisor.died(process.name, process.status, self._runtime.now_ms())
        if process.status == PORT_IN_USE and delay_ms is not None:
            port = self._members[process.name].port
            self._log.error("broker_port_taken", process=process.name, port=port, tried_again_in_ms=delay_ms)
        fields: dict[str, Any] = {"process": process.name, "pid": process.pid, "status": process.status}
        if delay_ms is not None:
            self._log.error("broker_process_died", **fields, restart_in_ms=delay_ms)
        else:
            self._log.info("broker_process_ended", **fields)
        self._act()


def _at_its_ports(member: Member, addresses: dict[str, str]) -> Member:
    """The ports that a broker got are its ports after a restart too: they stand in routes and message ids."""
    port = int(addresses["broker"].rpartition(":")[2])
    metrics = addresses.get("metrics", "").removesuffix("/metrics").rpartition(":")[2]
    grpc = addresses.get("grpc", "").rpartition(":")[2]
    return member._replace(
        port=port,
        metrics_port=int(metrics) if metrics else None,
        grpc_port=int(grpc) if grpc else member.grpc_port,
    )
