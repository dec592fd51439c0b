"""The native part of a build; all else stands in pyproject.toml. native/build_backend.py says when it is built."""

import os
import shutil

from setuptools import setup

choice = os.environ.get("LOCKSTEP_NATIVE", "")
extensions = []
if choice == "1" or (choice != "0" and shutil.which("cargo")):
    try:
        # Imported here: pip runs this file once before it knows what the build requires.
        from setuptools_rust import Binding, RustExtension
    except ImportError:
        if choice == "1":
            raise
    else:
        extensions.append(
            RustExtension(
                "lockstep.protocol._native",
                path="native/Cargo.toml",
                binding=Binding.PyO3,
                py_limited_api=True,
                # A broken cargo gives the pure package, unless the native one was asked for.
                optional=choice != "1",
                debug=False,
            )
        )
if extensions:
    # One wheel serves Python 3.11 and all later ones.
    setup(rust_extensions=extensions, options={"bdist_wheel": {"py_limited_api": "cp311"}})
else:
    setup()
