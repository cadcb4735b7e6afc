"""The keys of a protocol's YAML: split, search, reproductions, and what is scored.

All durations are in epochs as the protocol counts them (:attr:`Training.iterations_per_epoch`
iterations), all learning rates are per optimiser step.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from reality_check.config.claims import Category
from reality_check.config.described import Description
from reality_check.config.metrics import (
    METRICS,
    PRIMARY,
    Stage,
    check_name,
    check_selects,
    metric_of,
)
from reality_check.config.search import OneSearch, Search
from reality_check.config.training import Training
from reality_check.config.types import RESULT_NEUTRAL, TABLE_NEUTRAL, Fixed, Name, PositiveInt
from reality_check.config.values import Strict
from reality_check.config.yaml_text import read_yaml
from reality_check.utils.errors import UsageError
from reality_check.utils.text import duplicates

#: The name of a class in the data set; numbers are converted to text.
ClassName = Annotated[str, BeforeValidator(lambda v: str(v) if type(v) is int else v)]


class Split(Strict):
    """Which classes train, validate and test (protocol section 1).

    The path of a YAML file with this mapping may be given instead.
    """

    test_classes: Literal["half", "official"] | Annotated[list[ClassName], Field(min_length=2)] = (
        "half"
    )
    """half: the second half of the sorted classes. official: the test classes of the data set's own
    split. Or a list of class names."""
    rule: Literal["mlrc", "kfold", "halves", "own"] = "mlrc"
    """mlrc: the published folds. kfold: folds of equal size. halves: the first half trains, the
    second validates, as the only fold. own: the folds listed in validation."""
    validation: list[Annotated[list[ClassName], Field(min_length=2)]] | None = None
    """Names of the classes that validate in each fold; all others that are not tested train."""
    folds: Annotated[int, Field(ge=1, le=20, validate_default=True)] = 4
    """Number of class-disjoint folds; 1 with the rule halves, and as many as validation lists with
    the rule own."""

    @model_validator(mode="before")
    @classmethod
    def _read_file(cls, value: Any) -> Any:
        """Read a split that is given by path; ``validation`` implies its rule and folds."""
        if isinstance(value, str):
            try:
                value = read_yaml(Path(value))
            except UsageError as error:
                raise ValueError(str(error).removesuffix(".")) from None
        if isinstance(value, dict) and isinstance(value.get("validation"), list):
            return {**value, "rule": "own", "folds": len(value["validation"])}
        return value

    @field_validator("validation")
    @classmethod
    def _check_named_once(cls, value: list[list[str]] | None) -> list[list[str]] | None:
        counts = Counter(name for fold in value or () for name in fold)
        repeated = next((name for name, count in counts.items() if count > 1), None)
        if repeated is not None:
            raise ValueError(f"the class {repeated!r} is listed twice; each validates once at most")
        return value

    @field_validator("folds")
    @classmethod
    def _check_folds(cls, value: int, info: ValidationInfo) -> int:
        rule = info.data.get("rule")
        if rule == "own":
            if info.data.get("validation") is None:
                raise ValueError("the rule own needs validation, a list of classes for each fold")
            return value
        # None: the rule is invalid, and only that mistake is reported.
        if rule is not None and (value == 1) != (rule == "halves"):
            raise ValueError(
                f"rule={rule} with folds={value}: the rule halves has 1 fold, the others have at "
                "least 2"
            )
        return value


class Complete(Strict):
    """The category trained on all trainval classes."""

    round_epochs_up_to: PositiveInt = 5
    """The number of epochs, a mean over the folds, is rounded up to a multiple of this."""


class PublishedSetup(Strict):
    """Settings of the published protocol that have no key here; only compared in the report."""

    model: str | None = None
    """The published network, a name of `reality-check show models`."""
    dataset: list[str] | None = None
    """The published data sets, by reader."""
    images: Fixed = Field(default_factory=dict)
    """How the images of the published data set are decoded."""
    methods: list[str] = Field(default_factory=list)
    """Folders of configs/methods/ with search ranges that were published for this data set; their
    methods replace those of the same name, the first folder first."""


class PairList(Strict):
    """A list of pairs of test images to verify, in any format of LFW and its relatives."""

    file: str
    """LFW's pairs.txt; lines IMAGE IMAGE 1 or 0; or two lines IMAGE FLAG for each pair."""
    images: str = ""
    """Prefix of the paths of its images in the data set, if other images have the same names."""


class Protocol(Strict):
    """The rules that all methods of an experiment share.

    If it ``selects_on`` the last epoch, or on the test classes as in many papers, one network is
    trained on all trainval classes (``categories: [complete]``) and nothing is searched. Verdicts
    are about MAP@R, regardless of ``selects_by``.
    """

    name: Annotated[Name, TABLE_NEUTRAL]
    """Name of the protocol in reports."""
    reference: Name
    """The shipped protocol from which the report lists deviations."""
    note: Annotated[str, TABLE_NEUTRAL] = ""
    """Text shown in the report."""
    split: Split = Field(default_factory=Split)
    """Which classes train, validate and test."""
    selects_on: Literal["validation", "last", "test"] = "validation"
    """How the epoch of the scored weights is chosen. validation: on the validation classes of the
    folds. last: the last epoch. test: on the test classes, which biases the estimate."""
    selects_by: str = PRIMARY
    """The validation metric that chooses epochs and trials, e.g. recall_at_1."""
    training: Training
    """How each network is trained."""
    search: Search = Field(default_factory=OneSearch)
    """The hyper-parameter search of every method."""
    reproductions: PositiveInt = 10
    """Retrainings with fresh seeds of each winner, or each retrained trial."""
    categories: list[Category] = Field(default=["aggregate", "ensemble"], min_length=1)
    """How a reproduction is scored: aggregate, ensemble, complete."""
    complete: Complete = Field(default_factory=Complete)
    """Settings of the networks trained on all classes but the test classes."""
    pairs: Annotated[dict[Name, PairList], TABLE_NEUTRAL] = Field(default_factory=dict)
    """Lists of pairs of test images, by name: {LFW: {file: pairs.txt}} for verification_LFW."""
    final_metrics: Annotated[list[str], TABLE_NEUTRAL] = Field(default_factory=list)
    """Metrics measured in addition to MAP@R, RP and P@1; nothing is selected by them."""
    described: Annotated[
        dict[str, Description], RESULT_NEUTRAL, WithJsonSchema({"type": "object"})
    ] = Field(default_factory=dict)
    """Written by a run: titles, units and directions of user-defined metrics."""
    gallery: Annotated[int, Field(ge=0, le=50), TABLE_NEUTRAL] = 0
    """Number of test images whose nearest neighbours the report shows for each method."""
    published: PublishedSetup = Field(default_factory=PublishedSetup)
    """Settings of the published protocol; only compared in the report."""

    @field_validator("categories")
    @classmethod
    def _check_categories(cls, value: list[str]) -> list[str]:
        if len(set(value)) != len(value):
            raise ValueError("each category may be listed once")
        return value

    _check_selects_by = field_validator("selects_by")(check_selects)

    @field_validator("final_metrics")
    @classmethod
    def _check_metrics(cls, value: list[str], info: ValidationInfo) -> list[str]:
        for name in value:
            check_name(name)
            list_name = metric_of(name).pairs
            # If ``pairs`` is invalid, info.data lacks it, and only that mistake is reported.
            if list_name and list_name not in info.data.get("pairs", [list_name]):
                raise ValueError(
                    f"{name!r} needs a list; write pairs: {{{list_name}: {{file: PATH}}}}"
                )
        if repeated := duplicates(value):
            raise ValueError(f"{repeated[0]!r} is listed twice; list each metric once")
        return value

    @model_validator(mode="after")
    def _check_search(self) -> Self:
        race, allowed = self.search.race, self.split.folds - 1
        if len(race) > allowed:
            raise ValueError(
                f"search.race has {len(race)} fractions, one after each fold but the last; with "
                f"split.folds={self.split.folds} there are at most {allowed}; write "
                f"search.race: {list(race[:allowed])}"
            )
        if self.search.retrain == "none" and self.reproductions > 1:
            raise ValueError(
                f"reproductions={self.reproductions} with search.retrain=none, which scores the "
                "networks of the search and trains none again; write reproductions: 1, or "
                "search.retrain: best"
            )
        return self

    @model_validator(mode="after")
    def _check_selects_on(self) -> Self:
        if self.selects_on == "validation":
            return self
        if self.categories != ["complete"]:
            raise ValueError(
                f"selects_on: {self.selects_on} has no validation classes, so there are no folds "
                f"to score; write categories: [complete], not {list(self.categories)}"
            )
        if self.selects_by != PRIMARY:
            raise ValueError(
                f"selects_by: {self.selects_by} is about validation classes, but selects_on: "
                f"{self.selects_on} has none; remove selects_by"
            )
        if self.search.settings > 1:
            raise ValueError(
                f"selects_on: {self.selects_on} has no search, so there is none to repeat; write "
                "search: {kind: one}"
            )
        return self

    @property
    def runs(self) -> int:
        """The number of reproductions of a method, over all its searches."""
        return self.search.settings * self.reproductions

    def objective(self, stage: Stage) -> str:
        """Return what the values of a stage's trials measure, in words."""
        if stage is Stage.BASELINES:
            return f"best test {METRICS[PRIMARY]} without training"
        if stage is Stage.FINAL:
            return f"test {METRICS[PRIMARY]}"
        return f"validation {metric_of(self.selects_by, self.described).maximised.title}"

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of every method, in order.

        Reproductions are trained if one of their categories is scored; otherwise the number of
        epochs of the final stage comes from the search.
        """
        included = {
            Stage.SEARCH: self.selects_on == "validation",
            Stage.REPRODUCTIONS: self.categories != ["complete"],
            Stage.FINAL: "complete" in self.categories,
        }
        return tuple(stage for stage, is_included in included.items() if is_included)
