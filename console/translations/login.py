"""Texts of the login: key -> English, Chinese."""

from collections.abc import Mapping
from typing import Final

__all__ = ["TEXTS"]

TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "login.title": ("Log in", "登录"),
    "login.name": ("Account", "账号"),
    "login.secret": ("Password or token", "密码或令牌"),
    "login.wrong": ("This account and password do not belong together.", "账号或密码不正确。"),
    "login.wait": ("Too many attempts. Wait a minute.", "尝试次数过多，请等一分钟。"),
    "login.out": ("Log out {name}", "退出 {name}"),
    "login.read_only": ("This account may look, and change nothing.", "此账号只能查看，不能更改。"),
}
