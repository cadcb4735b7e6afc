"""Keys of an experiment that the schema marks as allowed to differ.

Keys are dotted, as :func:`reality_check.config.differences.differing_keys` names them. A marked key
includes all keys below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import get_args

from pydantic import BaseModel

from reality_check.config.schema import Experiment
from reality_check.config.types import MayDiffer, is_model


def is_result_neutral(key: str) -> bool:
    """Return whether no result depends on a key, so that it may change between two runs."""
    return _is_below(key, marked_keys("runs"))


def is_table_neutral(key: str) -> bool:
    """Return whether results may be in one table even if the key differs."""
    return is_result_neutral(key) or _is_below(key, marked_keys("experiments"))


@cache
def marked_keys(between: str) -> frozenset[str]:
    """Return the keys that the schema marks with ``MayDiffer(between)``."""
    return frozenset(key for mark, key in _marks(Experiment, "") if mark.between == between)


def _is_below(key: str, marked: frozenset[str]) -> bool:
    """Return whether a key, ignoring the method's name in it, is marked or below a marked key."""
    _, _, method_key = key.removeprefix("methods.").partition(".")  # after the method's name
    keys = [key, f"methods.{method_key}"] if key.startswith("methods.") and method_key else [key]
    return any(key == mark or key.startswith(f"{mark}.") for mark in marked for key in keys)


def _marks(model: type[BaseModel], path: str) -> Iterator[tuple[MayDiffer, str]]:
    """Yield the marks of a model and of the models in it, each with its dotted key."""
    for name, field in model.model_fields.items():
        key = f"{path}{name}"
        for mark in field.metadata:
            if isinstance(mark, MayDiffer):
                yield from ((mark, f"{key}.{inner}") for inner in mark.keys)
                if not mark.keys:
                    yield mark, key
        # The models in a union, or the model itself; those in a list are not followed.
        for inner in filter(is_model, get_args(field.annotation) or (field.annotation,)):
            yield from _marks(inner, f"{key}.")
