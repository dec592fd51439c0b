"""How a command reaches brokers: the account and the TLS of its options. Its clients take them from the environment."""

import os
from enum import StrEnum
from typing import Annotated

import typer

from lockstep.cli.output import UsageError

__all__ = [
    "AccessKey",
    "SecretKey",
    "Tls",
    "TlsCa",
    "TlsCert",
    "TlsKey",
    "TlsMode",
    "default_account",
    "default_tls",
    "use_account",
    "use_tls",
]


class TlsMode(StrEnum):
    """The names of `lockstep.client.tls.TLS_MODES`, which a command imports only when it runs."""

    ON = "on"
    UNVERIFIED = "unverified"
    OFF = "off"


# The options of `lockstep` and `lockstep-pipeline` themselves, in front of a command.
AccessKey = Annotated[
    str | None, typer.Option(metavar="KEY", help="The account for brokers with ACL; else LOCKSTEP_ACCESS_KEY.")
]
SecretKey = Annotated[
    str | None, typer.Option(metavar="KEY", help="Its secret; safer in LOCKSTEP_SECRET_KEY, which `ps` does not show.")
]
Tls = Annotated[
    TlsMode | None, typer.Option(help="TLS to all servers; else LOCKSTEP_TLS. unverified believes any server.")
]
TlsCa = Annotated[
    str | None, typer.Option(metavar="FILE", help="Certificates that sign servers; else LOCKSTEP_TLS_CA.")
]
TlsCert = Annotated[
    str | None, typer.Option(metavar="FILE", help="The client's own certificate; else LOCKSTEP_TLS_CERT.")
]
TlsKey = Annotated[
    str | None, typer.Option(metavar="FILE", help="Its key, if it is in a file of its own; else LOCKSTEP_TLS_KEY.")
]


def use_account(access_key: str | None, secret_key: str | None) -> None:
    """Let the clients of this process sign for an account.

    What an option gives wins over what is in the environment. Raises UsageError when a key is missing.
    """
    if access_key is None and secret_key is None:
        return
    from lockstep.client.credentials import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE  # imported here: slow

    options = (("--access-key", ACCESS_KEY_VARIABLE, access_key), ("--secret-key", SECRET_KEY_VARIABLE, secret_key))
    for option, variable, given in options:
        if given is not None:
            os.environ[variable] = given
        elif not os.environ.get(variable):
            raise UsageError(f"an account needs both keys: give {option} too, or set {variable}")


def use_tls(mode: str | None, ca: str | None, cert: str | None, key: str | None) -> None:
    """Let the clients of this process use TLS as the options say. With any of them the environment's do not count.

    Args:
        mode: A word of TlsMode.
    """
    if mode is None and ca is None and cert is None and key is None:
        return
    from lockstep.client.tls import CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE, TLS_VARIABLE  # imported here: slow

    variables = (TLS_VARIABLE, CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE)
    os.environ.update({name: given or "" for name, given in zip(variables, (mode, ca, cert, key), strict=True)})


def default_account(access_key: str | None, secret_key: str | None) -> None:
    """Let the clients of this process sign for a saved account, unless an option or the environment has one."""
    if access_key is None or secret_key is None:
        return
    from lockstep.client.credentials import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE  # imported here: slow

    if not os.environ.get(ACCESS_KEY_VARIABLE) and not os.environ.get(SECRET_KEY_VARIABLE):
        use_account(access_key, secret_key)


def default_tls(mode: str | None, ca: str | None, cert: str | None, key: str | None) -> None:
    """Let the clients of this process use saved TLS, unless an option or the environment says something about TLS."""
    if mode is None and ca is None and cert is None and key is None:
        return
    from lockstep.client.tls import CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE, TLS_VARIABLE  # imported here: slow

    if not any(os.environ.get(name) for name in (TLS_VARIABLE, CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE)):
        use_tls(mode, ca, cert, key)
