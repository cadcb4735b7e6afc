"""Claims: what an experiment is expected to show, written down before it runs."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict, Field, field_validator, model_validator
from typing_extensions import Self

from reality_check.config.metrics import METRICS, PRIMARY, check_name, metric_of
from reality_check.config.types import Name
from reality_check.config.values import Strict

Category = Literal["aggregate", "ensemble", "complete"]
Test = Literal["above", "not_below", "equal"]


@dataclass(frozen=True)
class Measured:
    """One metric of one method in one category."""

    method: str
    category: str
    metric: str


class Than(Strict):
    """Where the second method of a pair is measured; null is where the first one is."""

    category: Category | None = None
    """Null is the first method's."""
    metric: str | None = None
    """Null is the first method's."""


class Claim(Strict):
    """A claim of a paper as comparisons of methods: every pair in every category and metric.

    With d the first method's mean minus the second's, ``above`` says d > 0, ``not_below`` says
    d > -margin and ``equal`` says -margin < d < margin; for ``above`` a difference that is
    certainly within the margin refutes the claim. How it is decided:
    :mod:`reality_check.papers.claim_tests`.
    """

    model_config = ConfigDict(allow_inf_nan=True)  # refused below, with a clearer message
    name: Name
    """Name of the claim."""
    source: str
    """Where it is claimed."""
    text: str
    """The claim in words."""
    pairs: list[tuple[str, str]] = Field(min_length=1)
    """[first, second]: methods that are compared."""
    test: Test = "above"
    """above, not_below or equal: what the first is said to be, next to the second."""
    margin: float | str = "5 %"
    """A part of the second one's score, such as 5 %, or a number of percentage points; of
    separability in its own unit."""
    categories: list[Category] = Field(default=["aggregate"], min_length=1)
    """In which categories."""
    metrics: list[str] = Field(default=[PRIMARY], min_length=1)
    """By which metrics."""
    than: Than = Field(default_factory=Than)
    """Another category or metric for the second method, for example binary codes against floats."""
    overturned_by: str | None = None
    """What was run after the verdict and turned it around."""
    earlier: str | None = None
    """What an earlier experiment had found of the same claim."""

    @field_validator("margin")
    @classmethod
    def _positive(cls, value: float | str) -> float | str:
        if _number(value) is None:
            raise ValueError(
                "margin must be greater than 0: a number of points such as 1, or a part of the "
                f"second one's score such as 5 %; got {value!r}"
            )
        return value

    @field_validator("metrics")
    @classmethod
    def _known(cls, value: list[str]) -> list[str]:
        for name in value:
            if name not in METRICS:
                check_name(name)
        return value

    @model_validator(mode="after")
    def _compares_something(self) -> Self:
        for first, second in self.comparisons():
            if first == second:
                raise ValueError(
                    f"claim {self.name!r} compares {first.method!r} with itself; name another "
                    "method, or another category or metric under 'than'"
                )
        return self

    def margin_at(self, score: float, metric: str) -> float:
        """Return the margin in the unit of a metric, given the score of the second method."""
        number = _number(self.margin)
        assert number is not None
        if isinstance(self.margin, str):
            return number / 100 * abs(score)
        return number / 100 if metric_of(metric).percent else number

    def comparisons(self) -> Iterator[tuple[Measured, Measured]]:
        """Yield both sides of each comparison, in the order of pairs, categories and metrics."""
        for (first, second), category, metric in itertools.product(
            self.pairs, self.categories, self.metrics
        ):
            other = self.than.category or category, self.than.metric or metric
            yield Measured(first, category, metric), Measured(second, *other)


def _number(margin: float | str) -> float | None:
    """Return the number of points or of percent; ``None`` if the text is neither."""
    if isinstance(margin, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", margin.strip())
        margin = float(match[1]) if match else 0.0
    return margin if 0 < margin < math.inf else None
