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
    """Category and metric of the second method of a pair, if they are not the first method's."""

    category: Category | None = None
    """Category of the second method; null: that of the first method."""
    metric: str | None = None
    """Metric of the second method; null: that of the first method."""


class Claim(Strict):
    """A claim of a paper as comparisons of methods: every pair in every category and metric.

    With d the first method's mean minus the second's, ``above`` says d > 0, ``not_below`` says
    d > -margin and ``equal`` says -margin < d < margin; for ``above`` a difference that is
    certainly within the margin refutes the claim. The tests are in
    :mod:`reality_check.papers.claim_tests`.
    """

    model_config = ConfigDict(allow_inf_nan=True)  # refused below, with a clearer message
    name: Name
    """Name of the claim."""
    source: str
    """Where the paper claims it."""
    text: str
    """The claim in words."""
    pairs: list[tuple[str, str]] = Field(min_length=1)
    """[first, second]: methods that are compared."""
    test: Test = "above"
    """above, not_below or equal: the claimed relation of the first method's score to the
    second's."""
    margin: float | str = "5 %"
    """A fraction of the second method's score, such as 5 %, or a number of percentage points (for
    separability, of its own unit)."""
    categories: list[Category] = Field(default=["aggregate"], min_length=1)
    """Categories in which the methods are compared."""
    metrics: list[str] = Field(default=[PRIMARY], min_length=1)
    """Metrics by which the methods are compared."""
    than: Than = Field(default_factory=Than)
    """Another category or metric for the second method, for example binary codes against floats."""
    overturned_by: str | None = None
    """A later run that reversed the verdict."""
    earlier: str | None = None
    """What an earlier experiment found about the same claim."""

    @field_validator("margin")
    @classmethod
    def _check_margin(cls, value: float | str) -> float | str:
        if _margin_number(value) is None:
            raise ValueError(
                "margin must be greater than 0: a number of points such as 1, or a part of the "
                f"second one's score such as 5 %; got {value!r}"
            )
        return value

    @field_validator("metrics")
    @classmethod
    def _check_metrics(cls, value: list[str]) -> list[str]:
        for name in value:
            if name not in METRICS:
                check_name(name)
        return value

    @model_validator(mode="after")
    def _check_comparisons(self) -> Self:
        for first, second in self.comparisons():
            if first == second:
                raise ValueError(
                    f"claim {self.name!r} compares {first.method!r} with itself; name another "
                    "method, or another category or metric under 'than'"
                )
        return self

    def margin_at(self, score: float, metric: str) -> float:
        """Return the margin in the unit of a metric, given the score of the second method."""
        number = _margin_number(self.margin)
        assert number is not None
        if isinstance(self.margin, str):
            return number / 100 * abs(score)
        # Scores that are printed in percent are fractions.
        return number / 100 if metric_of(metric).percent else number

    def comparisons(self) -> Iterator[tuple[Measured, Measured]]:
        """Yield both sides of each comparison, in the order of pairs, categories and metrics."""
        for (first, second), category, metric in itertools.product(
            self.pairs, self.categories, self.metrics
        ):
            yield (
                Measured(first, category, metric),
                Measured(second, self.than.category or category, self.than.metric or metric),
            )


def _margin_number(margin: float | str) -> float | None:
    """Return the points or percent of a margin; None unless they are positive and finite."""
    if isinstance(margin, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", margin.strip())
        margin = float(match[1]) if match else 0.0
    return margin if 0 < margin < math.inf else None
