"""The account that the environment of a process names."""

import os
from typing import Final

from lockstep.protocol.signature import Credentials
from lockstep.remoting.settings import SettingError

__all__ = ["ACCESS_KEY_VARIABLE", "SECRET_KEY_VARIABLE", "credentials_of_environment"]

ACCESS_KEY_VARIABLE: Final = "LOCKSTEP_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "LOCKSTEP_SECRET_KEY"


def credentials_of_environment() -> Credentials | None:
    """The account that the environment names, or None. Raises SettingError when it has only one of the two keys."""
    access_key, secret_key = os.environ.get(ACCESS_KEY_VARIABLE, ""), os.environ.get(SECRET_KEY_VARIABLE, "")
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        missing = SECRET_KEY_VARIABLE if access_key else ACCESS_KEY_VARIABLE
        raise SettingError(f"{missing} is not set: {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} go together")
    return Credentials(access_key, secret_key)
