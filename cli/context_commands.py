"""The commands of `lockstep context`."""

import os
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any, Final

import typer

from lockstep.cli.access import TlsMode
from lockstep.cli.context.contexts import LOCK_MODES, Context, ContextFile, Contexts, check_name
from lockstep.cli.option_values import duration_option
from lockstep.cli.options import Output, Work, command
from lockstep.cli.output import CliError, OutputFormat, UsageError, json_line, note, print_rows, write_out
from lockstep.remoting.host.os_storage import OsStorage

__all__ = ["context"]

_COLUMNS: Final = ("current", "name", "name_server", "group", "lock_mode", "lock_live_ms", "output", "account", "tls")
_Name = Annotated[str, typer.Argument(metavar="NAME")]

context = typer.Typer(
    help="Clusters by name: their name servers and defaults, for --context, LOCKSTEP_CONTEXT and `context use`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@dataclass(frozen=True, kw_only=True)
class _AddOptions:
    name: _Name
    name_server: Annotated[
        str, typer.Option("--name-server", "-n", metavar="HOST:PORT", help="Name servers, with ';' between several.")
    ]
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="Of commands that look at a group or join it.")
    ] = None
    lock_mode: Annotated[
        str | None, typer.Option(metavar="|".join(LOCK_MODES), help="The brokers' --lock-mode: fenced is for consume.")
    ] = None
    lock_live_ms: Annotated[
        int | None, duration_option("--lock-live-ms", "The brokers' --lock-live-ms.", bare="ms")
    ] = None
    output: Annotated[OutputFormat | None, typer.Option("--output", "-o", help="A table, or JSON.")] = None
    account: Annotated[
        bool, typer.Option("--account", help="Keep the account of LOCKSTEP_ACCESS_KEY and LOCKSTEP_SECRET_KEY too.")
    ] = False
    tls: Annotated[TlsMode | None, typer.Option(help="TLS to all servers; unverified believes any server.")] = None
    tls_ca: Annotated[str | None, typer.Option(metavar="FILE", help="Certificates that sign servers.")] = None
    tls_cert: Annotated[str | None, typer.Option(metavar="FILE", help="The client's own certificate.")] = None
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="Its key, if it is in a file of its own.")] = None
    replace_it: Annotated[bool, typer.Option("--replace", help="Also when there is one of this name.")] = False


@command(context, "add")
def _add(options: _AddOptions) -> Work:
    """Keep a cluster under a name. The first one becomes the current one."""
    from lockstep.client.credentials import credentials_of_environment  # imported here: slow

    keys = credentials_of_environment() if options.account else None
    if options.account and keys is None:
        raise UsageError("--account: set LOCKSTEP_ACCESS_KEY and LOCKSTEP_SECRET_KEY, from which it is taken")
    try:
        made = Context(
            name_server=options.name_server,
            group=options.group,
            lock_mode=options.lock_mode,
            lock_live_ms=options.lock_live_ms,
            output=None if options.output is None else options.output.value,
            access_key=None if keys is None else keys.access_key,
            secret_key=None if keys is None else keys.secret_key,
            tls=None if options.tls is None else options.tls.value,
            tls_ca=_absolute(options.tls_ca),
            tls_cert=_absolute(options.tls_cert),
            tls_key=_absolute(options.tls_key),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    return partial(_keep, check_name(options.name), made, replace_it=options.replace_it)


def _absolute(path: str | None) -> str | None:
    """Commands with this context run in any folder."""
    return os.path.abspath(path) if path else None  # noqa: PTH100  (no file is touched)


def _file() -> ContextFile:
    return ContextFile(OsStorage())


def _keep(name: str, made: Context, *, replace_it: bool) -> None:
    file = _file()
    contexts = file.read()
    if name in contexts.by_name and not replace_it:
        raise CliError(f"there is a context {name!r} already; --replace changes it")
    file.write(Contexts(contexts.current or name, {**contexts.by_name, name: made}))
    is_current = contexts.current in (None, name)
    note(f"context {name} is kept in {file.path}" + (", and is the current one" if is_current else ""))


@context.command(name="use")
def _use(
    name: Annotated[str | None, typer.Argument(metavar="NAME")] = None,
    none: Annotated[bool, typer.Option("--none", help="Have no current context.")] = False,
) -> Work:
    """Make a context the current one: of all commands without --context and LOCKSTEP_CONTEXT."""
    if (name is None) != none:
        raise UsageError("give either the name of a context or --none")
    return partial(_make_current, name)


def _make_current(name: str | None) -> None:
    file = _file()
    contexts = file.read()
    if name is not None:
        contexts.get(name)
    file.write(replace(contexts, current=name))
    note(f"the current context is {name}" if name is not None else "there is no current context now")


@context.command(name="list")
def _list(output: Output = OutputFormat.TABLE) -> Work:
    """All contexts; * marks the current one."""
    return partial(_print_all, output)


def _print_all(output: OutputFormat) -> None:
    contexts = _file().read()
    rows = [{"name": name, **_row(contexts, name)} for name in sorted(contexts.by_name)]
    if output is not OutputFormat.JSON:
        rows = [row | {"current": "*" if row["current"] else ""} for row in rows]
    print_rows(_COLUMNS, rows, output)


@context.command(name="show")
def _show(
    call: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Without it, the one in use.")] = None,
    output: Output = OutputFormat.TABLE,
) -> Work:
    """One context, and the file that holds it."""
    return partial(_print_one, name or call.obj, output)


def _print_one(name: str | None, output: OutputFormat) -> None:
    file = _file()
    contexts = file.read()
    chosen = name or contexts.current
    if chosen is None:
        if not contexts.by_name:
            raise CliError("there are no contexts (`lockstep context add` makes one)")
        known = ", ".join(sorted(contexts.by_name))
        raise CliError(f"no context is in use; known are {known} (`lockstep context use` chooses one)")
    contexts.get(chosen)
    row = {"name": chosen, **_row(contexts, chosen), "file": file.path}
    if output is OutputFormat.JSON:
        write_out(json_line(row).encode("utf-8", "replace") + b"\n")
    else:
        lines = [{"field": key.replace("_", " "), "value": value} for key, value in row.items()]
        print_rows(("field", "value"), [line | {"value": _text(line["value"])} for line in lines], output)


def _text(value: object) -> str | None:
    return None if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _row(contexts: Contexts, name: str) -> dict[str, Any]:
    """The fields for a person: the secret key stays in the file. TLS is on when a file is given."""
    row = asdict(contexts.by_name[name])
    del row["secret_key"]
    row["account"] = row.pop("access_key")
    if row["tls"] is None and (row["tls_ca"] or row["tls_cert"]):
        row["tls"] = TlsMode.ON.value
    return {"current": name == contexts.current, **row}


@context.command(name="remove")
def _remove(name: _Name) -> Work:
    """Forget a context. When it is the current one, there is none afterwards."""
    return partial(_forget, name)


def _forget(name: str) -> None:
    file = _file()
    contexts = file.read()
    contexts.get(name)
    left = {known: one for known, one in contexts.by_name.items() if known != name}
    file.write(Contexts(None if contexts.current == name else contexts.current, left))
    note(f"context {name} is removed" + (", which was the current one" if contexts.current == name else ""))
