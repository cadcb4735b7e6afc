"""What is refused in one sentence that says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from reality_check.utils.errors import UsageError


@contextmanager
def refused(*words: str, error: type[Exception] = UsageError) -> Iterator[None]:
    """Fail unless the error that is raised is one sentence that holds these words."""
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message, message
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"
