"""Stands before the handlers of a server: refused requests are answered here, and counted in the log."""

import asyncio
from collections.abc import Callable
from typing import Final

from lockstep.broker.acl.control import AccessControl
from lockstep.broker.acl.errors import AccessDenied, RuleError
from lockstep.broker.acl.files import AclFiles
from lockstep.broker.acl.replay import ReplayWindow
from lockstep.broker.acl.worker import AclRules, RulesWorker
from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.request_body import check_body_length
from lockstep.protocol.codes import ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler
from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.limit_log import EventThrottle
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import SettingError
from lockstep.store.format.layout import RULES_FILE

__all__ = ["AclGate", "open_acl"]

_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "  # people search for it
_HOSTS_MAX: Final = 1000

Check = Callable[[RemotingCommand, str, int], None]


def open_acl(config: BrokerConfig, runtime: Runtime, log: EventLog, broker: Broker | None) -> "AclGate":
    """The gate of a server whose settings ask for ACL. Raises SettingError when its rules cannot be read."""
    path = config.acl_file or f"{config.data_dir.rstrip('/')}/{RULES_FILE}"
    strict = config.acl_checks == "strict"
    try:
        files = AclFiles(runtime.storage, path, log)
        if config.acl_file:
            # Raises for a name that is misspelt. Without this, a missing file means no rules: nobody gets in.
            runtime.storage.read_file(path)
    except (RuleError, OSError) as error:
        if broker is not None:
            broker.abandon()
        reason = f"{path}: {error.strerror or error}" if isinstance(error, OSError) else error
        raise SettingError(f"acl_enable: {reason}") from None
    replay = ReplayWindow(config.acl_replay_window_ms) if strict else None
    rules, message_at = AclRules(files, RulesWorker(runtime)), None
    if broker is not None:
        broker.acl, message_at = rules, broker.messages.store.message_at
    control = AccessControl(files, strict=strict, replay=replay, message_at=message_at)
    if not files.rules.accounts:
        log.warning("acl_no_accounts", file=path, effect="only global white addresses are served")
    return AclGate(control, rules.worker, config.structured_body_bytes_max, log, strict=strict)


class AclGate:
    """Wraps the handlers of a broker and of a name server."""

    def __init__(
        self, control: AccessControl, worker: RulesWorker, body_bytes_max: int, log: EventLog, *, strict: bool
    ) -> None:
        self.control = control
        self._worker = worker
        self._looking: asyncio.Future[bool] | None = None
        self._body_bytes_max = body_bytes_max
        self._log = log
        self._strict = strict
        self._throttle = EventThrottle()
        self._hosts: set[str] = set()

    def look(self, now_ms: int) -> None:
        """Read the rules again, on their thread, when a file has changed."""
        if self._looking is None or self._looking.done():
            self._looking = self._worker.submit(self.control.files.look)

    def close(self) -> None:
        self._worker.close()

    def before_broker(self, on_request: RequestHandler) -> RequestHandler:
        """The handler of a broker's requests, behind the gate."""
        return self._before(self.control.check, on_request)

    def before_name_server(self, on_request: RequestHandler) -> RequestHandler:
        """As `before_broker`, for a name server. RocketMQ's has no ACL, so without strict checks it has no gate."""
        return self._before(self.control.check_name_server, on_request) if self._strict else on_request

    def _before(self, check: Check, on_request: RequestHandler) -> RequestHandler:
        def checked(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            check_body_length(command, self._body_bytes_max)
            host = endpoint.host
            try:
                check(command, host, endpoint.read_at_ms)
            except AccessDenied as denied:
                self._refused(host, command, str(denied), endpoint.read_at_ms)
                return command.reply(ResponseCode.SYSTEM_ERROR, remark=_EXCEPTION + str(denied))
            return on_request(endpoint, command)

        return checked

    def _refused(self, host: str, command: RemotingCommand, reason: str, now_ms: int) -> None:
        """Log the refusals of a host at most every 10 s; peers without account must not fill log or memory."""
        if host not in self._hosts and len(self._hosts) >= _HOSTS_MAX:
            host = "others"
        self._hosts.add(host)
        times = self._throttle.times(host, now_ms)
        if times:
            self._log.warning("acl_refused", peer=host, request=request_name(command.code), reason=reason, times=times)
