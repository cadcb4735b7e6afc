"""The version of the format in files: a YAML, the one of an output folder, or a pack."""

from __future__ import annotations

from reality_check._version import SCHEMA_VERSION, __version__
from reality_check.utils.errors import UsageError


def check_schema_version(found: object, where: str) -> None:
    """Make sure that this program reads the version that a file says it has.

    Args:
        found: the version in the file.
        where: the file, and what its version is called there.

    Raises:
        UsageError: the file was written for a newer program, or its version is none.
    """
    if type(found) is not int or found < 1:
        allowed = " or ".join(map(str, range(1, SCHEMA_VERSION + 1)))
        raise UsageError(f"{where} is {found!r}, but can only be {allowed}.")
    if found > SCHEMA_VERSION:
        raise UsageError(
            f"{where} is {found}, which a newer reality-check wrote: {__version__} reads up to "
            f"{SCHEMA_VERSION}; write pip install --upgrade pml-extensions."
        )
