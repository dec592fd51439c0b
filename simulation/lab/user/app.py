"""The user's application: a listener, or a function that makes one or a PushConsumer."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lockstep.client import ConsumerError, Message, MessageExt, PushConsumer
from lockstep.client.callables import check_function
from lockstep.client.consumer.listener import LISTENER_PARAMETERS
from lockstep.simulation.lab.hosts import BROKER, GROUP, TOPIC, TRACE, Hosts

__all__ = ["AppError", "Listening", "UserApp", "app_of", "lab_listener"]

_WAYS: Final = (
    "an application is a listener (messages, context); or a function or class without arguments that makes one for "
    "each process; or a function (**client) that makes a PushConsumer with these arguments"
)


class AppError(Exception):
    """The text says what is wrong and what is allowed."""


class Listening(NamedTuple):
    """A listener of one process."""

    listener: Any


@dataclass(frozen=True)
class UserApp:
    """What the consumers run.

    Args:
        make: called with the hosts and a host's name at each start of a consumer's process.
        message: see `app_of`; None: a number as text, with one of the setup's keys.
    """

    topic: str
    group: str
    make: Callable[[Hosts, str], Listening | PushConsumer]
    message: Callable[..., Message] | None = None

    def made(
        self, topic: str, keys: int, failed: Mapping[int, Exception], number: int, key: int | None = None
    ) -> Message:
        """The message of a number.

        Args:
            failed: the numbers of messages that were given up, with the reason.
            key: of a plain one; None: the one whose turn it is. What an application makes has its own key.
        """
        if self.message is not None:
            return _message_of(self.message, number, failed)
        return Message(topic, str(number).encode(), sharding_key=f"key{number % keys if key is None else key}")


def lab_listener(work_ms: int) -> Any:
    """A listener that takes `work_ms` of virtual time."""

    async def listen(_: list[MessageExt], __: Any) -> None:
        if work_ms:
            await asyncio.sleep(work_ms / 1000)

    return listen


def app_of(app: Any, *, message: Callable[..., Message] | None = None) -> UserApp:
    """An application of a listener, or of a function that makes one or a PushConsumer.

    Args:
        message: makes a message of its number; a second parameter gets the numbers that were given up, with the reason.

    Raises:
        AppError: the application is none.
    """
    if isinstance(app, PushConsumer):
        raise AppError(f"a PushConsumer is of one process, and there are several: {_WAYS}")
    if not callable(app):
        raise AppError(f"{type(app).__name__} is no application: {_WAYS}")
    needed = [one for one in inspect.signature(app).parameters.values() if one.default is inspect.Parameter.empty]
    kinds = [one.kind for one in needed]
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return _app_of_consumers(app, message)
    topic = TOPIC if message is None else _message_of(message, 0, {}).topic
    if len([kind for kind in kinds if kind is not inspect.Parameter.KEYWORD_ONLY]) == 2 and not inspect.isclass(app):
        _check_listener(app)
        return UserApp(topic, GROUP, lambda _hosts, _name: Listening(app), message)
    if kinds:
        raise AppError(f"{_name(app)} has the parameters ({', '.join(one.name for one in needed)}): {_WAYS}")
    return UserApp(topic, GROUP, lambda _hosts, _name: Listening(_made_listener(app)), message)


def _made_listener(factory: Callable[[], Any]) -> Any:
    made = factory()
    if inspect.iscoroutine(made):
        made.close()
        raise AppError(f"{_name(factory)} is async, and has no parameters: {_WAYS}")
    if not callable(made):
        raise AppError(f"{_name(factory)} made a {type(made).__name__}: {_WAYS}")
    _check_listener(made)
    return made


def _check_listener(listener: Any) -> None:
    """Raise AppError for what a PushConsumer takes for no listener."""
    try:
        check_function("listener", listener, *LISTENER_PARAMETERS)
    except ConsumerError as error:
        raise AppError(f"{error}: {_WAYS}") from None


def _message_of(message: Callable[..., Message], number: int, failed: Mapping[int, Exception]) -> Message:
    needed = [
        parameter
        for parameter in inspect.signature(message).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    takes_failed = len(needed) > 1
    return message(number, failed) if takes_failed else message(number)


def _app_of_consumers(factory: Callable[..., Any], message: Callable[..., Message] | None) -> UserApp:
    probe = _made_consumer(factory, name_server=f"{BROKER}:9876")
    if not probe.topics:
        raise AppError(f"{_name(factory)} made a PushConsumer without a subscription: call its subscribe()")

    def make(hosts: Hosts, name: str) -> PushConsumer:
        runtime, log = hosts.world.host(name), hosts.log_of(name)
        return _made_consumer(factory, name_server=hosts.name_server, runtime=runtime, log=log, trace=TRACE)

    return UserApp(probe.topics[0], probe.group, make, message)


def _made_consumer(factory: Callable[..., Any], **client: Any) -> PushConsumer:
    made = factory(**client)
    if not isinstance(made, PushConsumer):
        raise AppError(f"{_name(factory)} made a {type(made).__name__}: {_WAYS}")
    return made


def _name(app: Any) -> str:
    return getattr(app, "__name__", type(app).__name__)
