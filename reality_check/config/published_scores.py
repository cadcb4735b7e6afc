"""The published numbers of a table that an experiment repeats; they are only shown."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from reality_check.config.metrics import CATEGORIES, METRICS, check_name
from reality_check.config.values import Strict, is_number


def _parse_figure(value: Any) -> Any:
    """Parse a number or ``[value, spread]``."""
    numbers = value if isinstance(value, list | tuple) else [value]
    if not 1 <= len(numbers) <= 2 or not all(map(is_number, numbers)):
        raise ValueError(f"a published figure is a number or [value, spread], got {value!r}")
    return tuple(map(float, numbers))


#: Value and, if it was published, spread; in percent if the metric is a fraction.
Figure = Annotated[
    tuple[float, ...],
    BeforeValidator(_parse_figure),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 2},
            ]
        }
    ),
]


#: The papers whose tables are repeated, by the name of their folder in ``configs/papers/``.
PAPERS = {
    "000_sgsl": "Stop-Gradient Softmax Loss for Deep Metric Learning (AAAI 2023)",
    "001_normalized_softmax": (
        "Classification is a Strong Baseline for Deep Metric Learning (BMVC 2019)"
    ),
    "002_grad_ml": "GradML: A Gradient-based Loss for Deep Metric Learning",
    "003_heated_up_softmax": "Heated-Up Softmax Embedding",
    "004_warped_softmax": "Realigned Softmax Warping for Deep Metric Learning",
}


class PublishedResults(Strict):
    """The published figures of one table, with known errors and differences.

    They do not affect what is computed.
    """

    paper: str
    """Folder of configs/papers/, or a citation."""
    item: str
    """The table or figure."""
    spread: str = ""
    """Meaning of the second number of a figure."""
    notes: list[str] = Field(default_factory=list)
    """Errata, and how unclear passages were interpreted."""
    gaps: list[str] = Field(default_factory=list)
    """Differences of this experiment from the paper that cannot be avoided."""
    results: dict[str, dict[str, dict[str, Figure]]] = Field(default_factory=dict)
    """Figures by category, method and metric: a number or [value, spread], in percent
    (separability: a ratio)."""
    config: str | None = None
    """Written by a run: the file that the experiment was made from."""

    @property
    def source(self) -> str:
        """Paper and item in a phrase."""
        return f"{PAPERS.get(self.paper, self.paper)}, {self.item}"

    @field_validator("results")
    @classmethod
    def _check_results(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        wrong = [name for name in value if name not in CATEGORIES]
        if wrong:
            raise ValueError(
                f"{wrong[0]!r} is not a category; write one of {', '.join(CATEGORIES)}"
            )
        for methods in value.values():
            for figures in methods.values():
                for name in figures:
                    if name not in METRICS:
                        check_name(name)
        return value

    def methods(self) -> list[str]:
        """Return the names of all methods with a figure, in order and without duplicates."""
        named = (name for methods in self.results.values() for name in methods)
        return list(dict.fromkeys(named))
