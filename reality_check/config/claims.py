"""What an experiment is to show, written down before it runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from reality_check.config.metrics import METRICS, PRIMARY, check_name, is_fraction
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
    metric: str | None = None


class Claim(Strict):
    """A claim of a paper as comparisons of methods: every pair in every category and metric.

    With d the first method's mean minus the second's, ``above`` says d > 0, ``not_below`` says
    d > -margin and ``equal`` says -margin < d < margin. ``margin`` is in percentage points, of
    ``separability`` in its own unit; for ``above`` a difference that is certainly within the margin
    refutes the claim. ``than`` compares with another category or metric, as in "binary codes
    retrieve as well as floats". How it is decided: :mod:`reality_check.papers.claims`.
    """

    name: Name
    source: str
    text: str
    pairs: list[tuple[str, str]] = Field(min_length=1)
    test: Test = "above"
    margin: Annotated[float, Field(gt=0)] = 1.0
    categories: list[Category] = Field(default=["aggregate"], min_length=1)
    metrics: list[str] = Field(default=[PRIMARY], min_length=1)
    than: Than = Field(default_factory=Than)

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
        plain = not all(map(is_fraction, self.metrics))
        if plain and "margin" not in self.model_fields_set:
            raise ValueError(
                f"claim {self.name!r} is about a ratio, so 1 percentage point is no margin for it; "
                "write margin, in the unit of the metric"
            )
        return self

    def comparisons(self) -> Iterator[tuple[Measured, Measured]]:
        """What is compared with what, in the order of pairs, categories and metrics."""
        for (first, second), category, metric in itertools.product(
            self.pairs, self.categories, self.metrics
        ):
            other = self.than.category or category, self.than.metric or metric
            yield Measured(first, category, metric), Measured(second, *other)
