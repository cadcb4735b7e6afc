"""Reader that calls a function: the user's, by import path, or a plugin's, by name."""

from __future__ import annotations

from typing import Any

from reality_check.config.classes import build, find_class
from reality_check.data.sample_set import SampleSet
from reality_check.utils.errors import UsageError


def read(config: Any) -> SampleSet:
    """Return the samples that the function returns."""
    subject = f"data set {config.name!r}: {config.function}"
    data = build(find_class(config.function, "dataset"), config.arguments, subject, extra={})
    if not isinstance(data, SampleSet):
        raise UsageError(
            f"{subject} must return a reality_check.data.ImageSet or TensorSet, got "
            f"{type(data).__name__}."
        )
    return data
