"""The account of a client: given, or from the environment."""

from dataclasses import replace
from typing import TypeVar

from lockstep.client.config import ClientConfig
from lockstep.protocol.signature import Credentials
from lockstep.remoting.credentials import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, credentials_of_environment

__all__ = ["ACCESS_KEY_VARIABLE", "SECRET_KEY_VARIABLE", "credentials_of_environment", "with_credentials"]

C = TypeVar("C", bound=ClientConfig)


def with_credentials(config: C, given: Credentials | None) -> C:
    """The settings with the account that a client was given, or else with that of the environment."""
    credentials = given or config.credentials or credentials_of_environment()
    return config if credentials == config.credentials else replace(config, credentials=credentials)
