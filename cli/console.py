"""`lockstep console`: starts the pages."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lockstep.cli.context.contexts import Context, ContextFile
from lockstep.cli.output import CliError, StderrLog, UsageError, check_writable, note
from lockstep.remoting.credentials import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.remoting.logs import EventLog, printable
from lockstep.remoting.settings import Address, is_loopback

if TYPE_CHECKING:
    from lockstep.console.console import Cluster
    from lockstep.console.login import LoginAccount

__all__ = ["console", "contexts_named", "login_accounts"]

_CLUSTERS_MAX: Final = 16  # each is asked for its locks twice a second


async def console(
    name_server: str,
    host: str,
    port: int,
    snapshot: Path | None,
    names: Sequence[str] = (),
    *,
    all_contexts: bool = False,
    login: Path | None = None,
    no_login: bool = False,
) -> None:
    """Serve the pages until Ctrl-C.

    Args:
        snapshot: Write one file with the page Order there instead.
        names, all_contexts: Contexts whose clusters are shown beside each other, instead of that of `name_server`.
        login: A plain_acl.yml, whose accounts may log in; those that are no administrators may only look.
        no_login: Whoever reaches `host` may do all, also when it is no loopback.

    Raises:
        UsageError: The pages would be open to a network, and that was not asked for.
        CliError: The extra is not installed, the address is in use, or the file cannot be written.
    """
    check_writable("--snapshot", snapshot)
    try:
        from lockstep.console.console import Cluster
        from lockstep.console.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("starlette", "uvicorn", "jinja2", "markupsafe"):
            raise CliError("the console needs more packages: pip install 'lockstep-mq[console]'") from None
        raise
    if login is None and not no_login and snapshot is None and not is_loopback(host):
        raise UsageError(
            f"whoever reaches {host} could read messages and change groups: --login FILE asks for an account, "
            "--no-login leaves the pages open"
        )
    chosen = contexts_named(names, all_contexts=all_contexts)
    if chosen and snapshot is not None:
        raise UsageError("--snapshot is of one cluster: leave --cluster and --all-contexts away")
    log = StderrLog(verbose=False)
    if snapshot is not None:
        await _write_snapshot(name_server, snapshot, log)
        return
    accounts = None if login is None else login_accounts(login)
    try:
        for variable in (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE) if chosen else ():
            os.environ.pop(variable, None)  # an account of one cluster signs nothing for another
        clusters = [_cluster(name, one) for name, one in chosen.items()] or [Cluster(name_server)]
        await serve(clusters, host, port, log, partial(_ready, host, has_login=login is not None), accounts)
    except OSError as error:
        address = Address(host, port)
        raise CliError(f"cannot listen on {address}: {error.strerror or error}; --port chooses another") from None


async def _write_snapshot(name_server: str, snapshot: Path, log: EventLog) -> None:
    from lockstep.console.snapshot import snapshot_of

    page = await snapshot_of(name_server, "en", log)
    try:
        snapshot.parent.mkdir(parents=True, exist_ok=True)
        with snapshot.open("w", encoding="utf-8", errors="replace") as file:  # it may be a pipe or a device
            file.write(page)
    except OSError as error:
        raise CliError(f"cannot write {snapshot}: {error.strerror or error}") from None
    note(f"wrote {snapshot}")


def contexts_named(names: Sequence[str], *, all_contexts: bool) -> dict[str, Context]:
    """The contexts that are shown, by name; empty: none was asked for. Raises CliError, UsageError."""
    if not names and not all_contexts:
        return {}
    contexts = ContextFile(OsStorage()).read()
    chosen = {name: contexts.get(name) for name in (names or sorted(contexts.by_name))}
    if not chosen:
        raise CliError("there are no contexts (`lockstep context add` makes one)")
    if len(chosen) > _CLUSTERS_MAX:
        raise UsageError(
            f"the console shows up to {_CLUSTERS_MAX} clusters, not {len(chosen)}: name some with --cluster"
        )
    return chosen


def _cluster(name: str, one: Context) -> "Cluster":
    """With the account and the TLS of its context alone."""
    from lockstep.client.tls import tls_of_texts  # imported here: slow
    from lockstep.console.console import Cluster
    from lockstep.protocol.signature import Credentials

    account = None if one.access_key is None or one.secret_key is None else Credentials(one.access_key, one.secret_key)
    tls = tls_of_texts(one.tls or "", one.tls_ca or "", one.tls_cert or "", one.tls_key or "")
    return Cluster(one.name_server, name, account, tls or False)


def login_accounts(path: Path) -> "dict[str, LoginAccount]":
    """The accounts of a plain_acl.yml by name. Raises CliError."""
    from lockstep.console.login import LoginAccount

    try:
        from lockstep.broker.acl.errors import RuleError
        from lockstep.broker.acl.rules import parse_file
    except ModuleNotFoundError as error:
        if error.name == "yaml":
            raise CliError("--login needs PyYAML: pip install 'lockstep-mq[acl]'") from None
        raise
    try:
        found = parse_file(OsStorage().read_file(str(path))).accounts
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror or error}") from None
    except RuleError as error:
        raise CliError(f"{path}: {error}") from None
    if not found:
        raise CliError(f"{path} has no accounts: nobody could log in")
    # As at a broker, the first account with a key counts.
    return {one.access_key: LoginAccount(one.access_key, one.secret_key, one.admin) for one in reversed(found)}


def _ready(host: str, address: str, *, has_login: bool = False) -> None:
    note(f"the console is at {printable(address)} (Ctrl-C ends it)")
    if not is_loopback(host):
        risk = "the pages ask for no password, so that all who reach them may read messages and change groups"
        if has_login:
            risk = "passwords and messages cross the network as they are"
        note(f"warning: at {printable(host)} {risk}: put a server with TLS before them")
