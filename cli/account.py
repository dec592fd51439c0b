"""The account of a command: its options --access-key and --secret-key."""

import os

from lockstep.cli.output import UsageError

__all__ = ["use_account"]


def use_account(access_key: str | None, secret_key: str | None) -> None:
    """Let the clients of this process sign for an account.

    They take it from the environment; what an option gives wins over what is there. Raises UsageError when a key is
    missing.
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
