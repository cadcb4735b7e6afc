"""Passwords in storage URLs, which are removed before a URL is written or shown."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from urllib.parse import unquote

#: The environment variable that hands the password to workers, and that a user may set.
PASSWORD_VARIABLE = "REALITY_CHECK_STORAGE_PASSWORD"

# The password ends at the last "@" before the end of the host.
_IN_AUTHORITY = re.compile(r"([^:/]+://[^:/@]*):(.*?)@([^@/?]*(?:[/?].*)?)", re.DOTALL)
# The groups are the separator before the password, the password, and the separator after it.
_IN_QUERY = re.compile(r"([?&])(?:password|passwd|pass)=([^&]*)(&?)", re.IGNORECASE)


def split_password(url: str) -> tuple[str, str | None]:
    """Split a URL into the URL without its password, and the password (``None`` if there is none).

    >>> split_password("postgresql+psycopg://tom:se%40cret@host/db")
    ('postgresql+psycopg://tom@host/db', 'se@cret')
    """
    password = None
    match = _IN_AUTHORITY.fullmatch(url)
    if match is not None:
        user, password, rest = match.groups()
        url = f"{user}@{rest}"
    in_query = _IN_QUERY.search(url)
    if in_query is not None:
        password = in_query[2] if password is None else password
        # The separator before the password stays if another parameter follows.
        url = _IN_QUERY.sub(lambda match: match[1] if match[3] else "", url)
    return url, None if password is None else unquote(password)


def without_password(url: str) -> str:
    """Return the URL without its password, as it may be shown and written."""
    return split_password(url)[0]


def password_for(url: str) -> tuple[str, str | None]:
    """Return the URL without its password, and the password of the URL or of the environment.

    If neither has one, the password is ``None``, and the driver may find it, as in ``~/.pgpass``.
    """
    bare, password = split_password(url)
    if password is None and not bare.startswith("sqlite"):  # a file has none
        password = os.environ.get(PASSWORD_VARIABLE)
    return bare, password


@contextlib.contextmanager
def lent_password(url: str | None) -> Iterator[None]:
    """Pass the password of the URL, if it has one, to child processes started in the block."""
    password = split_password(url)[1] if url else None
    if password is None:
        yield
        return
    before = os.environ.get(PASSWORD_VARIABLE)
    os.environ[PASSWORD_VARIABLE] = password
    try:
        yield
    finally:
        if before is None:
            del os.environ[PASSWORD_VARIABLE]
        else:
            os.environ[PASSWORD_VARIABLE] = before
