"""The keys of an experiment's block ``slurm:``, for a SLURM cluster."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveFloat, field_validator, model_validator
from typing_extensions import Self

from reality_check.config.types import PositiveInt
from reality_check.config.values import Strict


class Slurm(Strict):
    """What one worker's job requests from the cluster. It may change between two runs.

    Keys that are left out are not requested, so the cluster's defaults apply.
    """

    partition: str | None = None
    """Partition in which jobs are queued."""
    hours: PositiveFloat = 24.0
    """Time limit of a job; a worker that reaches it is requeued."""
    notice_seconds: Annotated[int, Field(ge=5)] = 120
    """How long before the limit a worker is asked to write its checkpoint."""
    gpus: NonNegativeInt | None = None
    """GPUs of a job; by default 1, or 0 with device: cpu."""
    cpus: PositiveInt = 2
    """Cores of a job."""
    memory: str | None = None
    """Memory of a job, as SLURM writes it: 16G."""
    account: str | None = None
    """Account that is charged."""
    qos: str | None = None
    """Quality of service."""
    setup: list[str] = Field(default_factory=list)
    """Shell commands that run before the worker starts, such as module load cuda."""
    extra: dict[str, str | int | bool] = Field(default_factory=dict)
    """Other options of sbatch, without the leading dashes."""

    @property
    def minutes(self) -> int:
        """The time limit in minutes, which is how SLURM counts it."""
        return max(1, round(self.hours * 60))

    @field_validator("memory", mode="before")
    @classmethod
    def _check_memory(cls, value: object) -> object:
        if value is not None and not re.fullmatch(r"[1-9]\d*[KMGT]", str(value)):
            raise ValueError(f"memory must be a number with its unit, such as 16G, got {value!r}")
        return value

    @field_validator("extra")
    @classmethod
    def _check_extra(cls, value: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        dashed = next((key for key in value if key.startswith("-")), None)
        if dashed is not None:
            raise ValueError(f"write {dashed.lstrip('-')!r} without the dashes of {dashed!r}")
        if reserved := sorted({"array", "output", "error", "signal", "time", "mem"} & set(value)):
            raise ValueError(f"extra cannot set {reserved[0]!r}: the launcher itself does")
        return value

    @model_validator(mode="after")
    def _check_notice(self) -> Self:
        if self.notice_seconds >= self.minutes * 60:
            raise ValueError(
                f"notice_seconds={self.notice_seconds} must be less than the time limit of "
                f"{self.minutes * 60} seconds (hours={self.hours:g})"
            )
        return self
