"""A context as the defaults of a command line: what options say wins, then the environment, then the context."""

import os
from collections.abc import Callable
from typing import Any, Final, NoReturn

import typer

from lockstep.cli.access import default_account, default_tls
from lockstep.cli.context.contexts import Context, ContextFile, Contexts
from lockstep.cli.output import CliError

__all__ = ["NAME_SERVER_VARIABLE", "apply_context", "use_saved_access"]

NAME_SERVER_VARIABLE: Final = "NAMESRV_ADDR"
_CHOSEN: Final = "lockstep.context"  # the context in use, and whether it was chosen by name
_ALONE: Final = ("context", "completion", "store", "trace")  # commands that ask no broker
# Commands that look at one group or join it. What changes a group is never chosen by a context.
_OF_A_GROUP: Final = (("consume",), ("group", "describe"), ("group", "watch"), ("offset", "show"))


def apply_context(context: typer.Context, file: ContextFile, name: str | None) -> None:
    """Make a context the defaults of the command that is called.

    Args:
        name: By --context or LOCKSTEP_CONTEXT: it wins over NAMESRV_ADDR, which wins over the current context.

    Raises:
        CliError: There is no such context. A damaged file is an error only when a default is wanted from it.
    """
    context.obj = name
    if context.invoked_subcommand in _ALONE:
        return
    try:
        contexts = file.read()
    except CliError as error:
        if name is not None:
            raise
        context.default_map = _defaults(context.command, (), {"name_server": _raising(error)})
        return
    chosen = _chosen(contexts, name)
    if chosen is None:
        return
    if name is not None:
        os.environ.pop(NAME_SERVER_VARIABLE, None)
    context.meta[_CHOSEN] = chosen, name is not None
    values = {
        "name_server": chosen.name_server,
        "group": chosen.group,
        "fenced": True if chosen.lock_mode == "fenced" else None,
        "lock_live_ms": chosen.lock_live_ms,
        "output": chosen.output,
    }
    known = {option: value for option, value in values.items() if value is not None}
    context.default_map = _defaults(context.command, (), known)


def use_saved_access(context: typer.Context, name_server: str | None) -> str | None:
    """Take account and TLS from the context, once the name servers of the command are known.

    The current context's are for its own servers alone: `NAMESRV_ADDR` or an option may name another cluster.
    """
    chosen, by_name = context.meta.get(_CHOSEN, (None, False))
    if chosen is not None and (by_name or name_server == chosen.name_server):
        default_account(chosen.access_key, chosen.secret_key)
        default_tls(chosen.tls, chosen.tls_ca, chosen.tls_cert, chosen.tls_key)
    return name_server


def _chosen(contexts: Contexts, name: str | None) -> Context | None:
    wanted = contexts.current if name is None else name
    return None if wanted is None else contexts.get(wanted)


def _raising(error: CliError) -> Callable[[], NoReturn]:
    def wanted() -> NoReturn:
        raise error

    return wanted


def _defaults(command: Any, path: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    """The tree of defaults of a command and those below it: only options that it has."""
    below = getattr(command, "commands", {})
    if below:
        return {name: _defaults(one, (*path, name), values) for name, one in below.items()}
    names = {parameter.name for parameter in command.params}
    return {name: value for name, value in values.items() if name in names and (name != "group" or path in _OF_A_GROUP)}
