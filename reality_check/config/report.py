"""Optional content of a report."""

from __future__ import annotations

from pydantic import Field, field_validator

from reality_check.config.values import Strict
from reality_check.utils.text import duplicates


class Report(Strict):
    """Optional content of a report; no result depends on it."""

    columns: list[str] = Field(default_factory=list)
    """Additional columns of the tables of methods: import paths of functions of the records of a
    method (my_report.latency), or names that installed packages add."""

    @field_validator("columns")
    @classmethod
    def _check_distinct(cls, names: list[str]) -> list[str]:
        if repeated := duplicates(names):
            raise ValueError(f"the column {repeated[0]!r} is named twice; name it once")
        return names
