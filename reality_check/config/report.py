"""What a report shows beyond what every report shows."""

from __future__ import annotations

from pydantic import Field, field_validator

from reality_check.config.values import Strict


class Report(Strict):
    """What a report shows beyond what every report shows; no result depends on it."""

    columns: list[str] = Field(default_factory=list)
    """Your own columns of the tables of methods: functions of what was recorded of a method, by
    import path (my_report.latency), or names that installed packages add."""

    @field_validator("columns")
    @classmethod
    def _different(cls, names: list[str]) -> list[str]:
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the column {twice[0]!r} is named twice; name it once")
        return names
