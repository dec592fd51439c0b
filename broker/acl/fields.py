"""Names of the top of a file of rules, as RocketMQ writes them."""

from typing import Final

__all__ = ["ACCOUNTS", "VERSION", "WHITE_ADDRESSES"]

WHITE_ADDRESSES: Final = "globalWhiteRemoteAddresses"
ACCOUNTS: Final = "accounts"
VERSION: Final = "dataVersion"
