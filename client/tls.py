"""How a client uses TLS: given, or from the environment."""

import os
from dataclasses import replace
from typing import Final, TypeVar

from lockstep.client.config import ClientConfig
from lockstep.remoting.settings import SettingError
from lockstep.remoting.tls.options import TlsOptions

__all__ = [
    "CA_VARIABLE",
    "CERT_VARIABLE",
    "KEY_VARIABLE",
    "TLS_MODES",
    "TLS_VARIABLE",
    "tls_of_environment",
    "tls_of_texts",
    "with_tls",
]

C = TypeVar("C", bound=ClientConfig)

TLS_VARIABLE: Final = "LOCKSTEP_TLS"
CA_VARIABLE: Final = "LOCKSTEP_TLS_CA"
CERT_VARIABLE: Final = "LOCKSTEP_TLS_CERT"
KEY_VARIABLE: Final = "LOCKSTEP_TLS_KEY"
TLS_MODES: Final = {"on": True, "unverified": False, "off": None}
"""Whether the server is verified; None: plain connections."""


def tls_of_texts(mode: str, ca: str = "", cert: str = "", key: str = "") -> TlsOptions | None:
    """How to use TLS, as the environment, a command or a source of Spark says it.

    Args:
        mode: one of TLS_MODES, or empty: on when a file is given, else off.
        ca: of `TlsOptions`, as `cert` and `key`.
    """
    verify = TLS_MODES[mode] if mode else (True if ca or cert or key else None)
    return None if verify is None else TlsOptions(ca, cert, key, verify)


def tls_of_environment() -> TlsOptions | None:
    """What LOCKSTEP_TLS and the variables beside it say. Raises SettingError for a mode that is none."""
    mode, *files = (os.environ.get(name, "") for name in (TLS_VARIABLE, CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE))
    if mode.lower() not in ("", *TLS_MODES):
        raise SettingError(f"{TLS_VARIABLE} must be on, unverified or off, not {mode!r}")
    return tls_of_texts(mode.lower(), *files)


def with_tls(config: C, given: TlsOptions | bool | None) -> C:
    """The settings with the TLS that a client was given, or else with that of the environment.

    Args:
        given: True: with the certificates that the system trusts; False: none, whatever the environment says.
    """
    if given is False:
        return config if config.tls is None else replace(config, tls=None)
    tls = TlsOptions() if given is True else given or config.tls or tls_of_environment()
    return config if tls == config.tls else replace(config, tls=tls)
