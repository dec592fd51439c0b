"""How a client uses TLS: given, or from the environment."""

import os
from dataclasses import replace
from typing import Final, TypeVar

from lockstep.client.config import ClientConfig
from lockstep.remoting.settings import SettingError
from lockstep.remoting.tls.options import TlsOptions

__all__ = ["CA_VARIABLE", "CERT_VARIABLE", "KEY_VARIABLE", "TLS_VARIABLE", "tls_of_environment", "with_tls"]

C = TypeVar("C", bound=ClientConfig)

TLS_VARIABLE: Final = "LOCKSTEP_TLS"
CA_VARIABLE: Final = "LOCKSTEP_TLS_CA"
CERT_VARIABLE: Final = "LOCKSTEP_TLS_CERT"
KEY_VARIABLE: Final = "LOCKSTEP_TLS_KEY"
_MODES: Final = {"": None, "off": None, "on": True, "unverified": False}  # whether the server is verified


def tls_of_environment() -> TlsOptions | None:
    """What LOCKSTEP_TLS says: "on", "unverified" (any server is believed) or "off". Raises SettingError for others."""
    text = os.environ.get(TLS_VARIABLE, "").lower()
    if text not in _MODES:
        raise SettingError(f"{TLS_VARIABLE} must be on, unverified or off, not {text!r}")
    ca, cert, key = (os.environ.get(name, "") for name in (CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE))
    if not text and (ca or cert or key):
        text = "on"
    verify = _MODES[text]
    return None if verify is None else TlsOptions(ca, cert, key, verify)


def with_tls(config: C, given: TlsOptions | bool | None) -> C:
    """The settings with the TLS that a client was given, or else with that of the environment.

    Args:
        given: True: with the certificates that the system trusts; False: none, whatever the environment says.
    """
    if given is False:
        return config if config.tls is None else replace(config, tls=None)
    tls = TlsOptions() if given is True else given or config.tls or tls_of_environment()
    return config if tls == config.tls else replace(config, tls=tls)
