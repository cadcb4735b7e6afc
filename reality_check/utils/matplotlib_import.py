"""Importing matplotlib, which fails where ``MPLBACKEND`` names a backend that is not installed."""

from __future__ import annotations

import contextlib
import os
import sys

from reality_check.utils.errors import UsageError


def import_matplotlib() -> None:
    """Import matplotlib whatever ``MPLBACKEND`` says: nothing here opens a window.

    Notebooks pass ``MPLBACKEND`` to the processes that they start, even in another environment.
    A backend that exists remains selected for the user's own figures.

    Raises:
        UsageError: the user's matplotlibrc cannot be read.
    """
    if "matplotlib" in sys.modules:
        return
    backend = os.environ.pop("MPLBACKEND", "")
    try:
        import matplotlib
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"matplotlib cannot read its settings, the file matplotlibrc ({error}); save it as "
            "UTF-8 or remove it."
        ) from error
    finally:
        if backend:
            os.environ["MPLBACKEND"] = backend
    if backend:
        with contextlib.suppress(ValueError):
            matplotlib.rcParams["backend"] = backend
