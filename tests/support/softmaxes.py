"""The ways to take the sums of a softmax over classes."""

from __future__ import annotations

from pml_extensions.losses import ChunkedSoftmax


def chunked(size: int | None) -> ChunkedSoftmax | None:
    """Return what takes ``size`` classes at a time; None is all at once."""
    return None if size is None else ChunkedSoftmax(size)
