"""Builds the distribution: with the native part where cargo is, pure elsewhere (PEP 517, around setuptools).

LOCKSTEP_NATIVE=0 builds the pure wheel, and LOCKSTEP_NATIVE=1 fails where the native part cannot be built.
"""

import os
import shutil
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import build_editable, build_sdist, build_wheel, prepare_metadata_for_build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]


def _with_rust(required: list[str]) -> list[str]:
    """A build without cargo needs no more than setuptools."""
    choice = os.environ.get("LOCKSTEP_NATIVE", "")
    is_built = choice == "1" or (choice != "0" and shutil.which("cargo") is not None)
    return [*required, "setuptools-rust>=1.12"] if is_built else required


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return _with_rust(build_meta.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return _with_rust(build_meta.get_requires_for_build_editable(config_settings))


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    return list(build_meta.get_requires_for_build_sdist(config_settings))
