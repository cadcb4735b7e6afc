"""What a protocol's YAML may say about the searches of every method: one class per kind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self

from reality_check.config.types import TABLE_NEUTRAL, Fixed, PositiveInt
from reality_check.config.values import Strict
from reality_check.utils.text import nearest

#: From the name of a sampler to its class in :mod:`optuna.samplers`.
SAMPLERS = {
    "tpe": "TPESampler",
    "gp": "GPSampler",
    "cmaes": "CmaEsSampler",
    "random": "RandomSampler",
    "qmc": "RandomSampler",
}
#: Samplers whose draws depend only on the seed, the trial and the parameter.
INDEPENDENT = ("random", "qmc")


class _AnySearch(Strict):
    """The hyper-parameter search of every method: the same number of trials for all.

    Every kind has the keys of all kinds as attributes; those that a YAML cannot set are constants.
    """

    kind: str
    """one: a single search. repeated: several independent ones. subsets: one random search, of
    which all subsets are searches."""
    trials: PositiveInt = 50
    """Sets of hyper-parameters that each search of a method tries; the same for all methods."""

    @property
    def trials_text(self) -> str:
        """The number of trials of a search, in words."""
        return f"{self.trials} trials"

    @property
    def settings(self) -> int:
        """The number of retrained trials of a method."""
        return 1


def _check_sampler(sampler: str) -> str:
    if sampler not in SAMPLERS and "." not in sampler:
        raise ValueError(
            f"there is no sampler {sampler!r}; write one of {', '.join(SAMPLERS)}, or the import "
            f"path of a subclass of optuna.samplers.BaseSampler.{nearest(sampler, SAMPLERS)}"
        )
    return sampler


class _SampledSearch(_AnySearch):
    """A search by any sampler, which is built anew for every trial, from the study alone."""

    trials_per_parameter: PositiveInt | None = None
    """Trials for each value that a method searches, in place of trials."""
    sampler: Annotated[str, AfterValidator(_check_sampler)] = "tpe"
    """Optuna's sampler: tpe (Bayesian), gp (Gaussian process), cmaes, random; qmc (Sobol's points),
    or the import path of one."""
    sampler_arguments: Fixed = Field(default_factory=dict)
    """Further keyword arguments of the sampler."""
    startup_trials: PositiveInt = 10
    """First trials that are drawn at random; at least as many as a method has hyper-parameters to
    search."""
    budget: ClassVar[None] = None
    race: ClassVar[tuple[float, ...]] = ()
    retrain: ClassVar[str] = "best"
    retrain_best: ClassVar[None] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.sampler not in INDEPENDENT and self.startup_trials > self.trials:
            if "startup_trials" in self.model_fields_set:
                raise ValueError(
                    f"startup_trials={self.startup_trials} of trials={self.trials}: every trial "
                    f"would be drawn at random; write startup_trials: {max(1, self.trials // 2)}, "
                    "or sampler: random"
                )
            self.startup_trials = self.trials
        return self

    @property
    def trials_text(self) -> str:
        each = self.trials_per_parameter
        return f"{each} trials a parameter" if each else super().trials_text


class OneSearch(_SampledSearch):
    """A single search of each method, whose winner is retrained."""

    kind: Literal["one"] = "one"
    repeats: ClassVar[int] = 1


class RepeatedSearches(_SampledSearch):
    """Independent searches of each method; the winner of each is retrained.

    What is said about a loss is about the means of its searches.
    """

    kind: Annotated[Literal["repeated"], TABLE_NEUTRAL]
    repeats: Annotated[PositiveInt, TABLE_NEUTRAL] = 5
    """Independent searches of each method; a verdict is about their means."""

    @property
    def settings(self) -> int:
        return self.repeats


#: A fraction of the trials of a search.
Share = Annotated[float, Field(gt=0, le=1)]


def _check_falling(race: tuple[float, ...]) -> tuple[float, ...]:
    if any(later > earlier for earlier, later in itertools.pairwise(race)):
        raise ValueError(
            f"race={list(race)}: a trial that has stopped does not continue, so no fraction may be "
            "larger than the one before it"
        )
    return race


class SubsetsSearch(_AnySearch):
    """One random search of each method, which stands for many.

    The result of a search of ``budget`` trials is estimated from all subsets of ``budget`` trials.
    """

    kind: Literal["subsets"]
    budget: PositiveInt = 10
    """Number of trials of a search that is estimated for, from all subsets of one random search."""
    race: Annotated[tuple[Share, ...], AfterValidator(_check_falling)] = ()
    """Fractions of the trials that continue after the first fold, after the second, ...; without
    them, all trials are trained on all folds."""
    retrain: Literal["best", "none"] = "best"
    """best: the best trials are trained again with fresh seeds, and scored on the test classes.
    none: the networks of the search itself are scored."""
    retrain_best: PositiveInt | None = None
    """How many of the best trials are retrained, or scored; by default as few as it takes, or all
    that were trained on all folds."""
    trials_per_parameter: ClassVar[None] = None
    repeats: ClassVar[int] = 1
    sampler: ClassVar[str] = "random"
    sampler_arguments: ClassVar[dict[str, Any]] = {}
    startup_trials: ClassVar[int] = 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.budget > self.trials:
            raise ValueError(
                f"budget={self.budget} is more than trials={self.trials}; write budget: "
                f"{max(1, self.trials // 3)}, or kind: one without a budget"
            )
        least = least_retrained(self.trials, self.budget)
        finalists = num_raced(self.trials, self.race[-1] if self.race else 1.0)
        if self.retrain_best is None:
            self.retrain_best = least if self.retrain == "best" else finalists
        if finalists < least:
            raise ValueError(
                f"race={list(self.race)} leaves {finalists} of {self.trials} trials, but with "
                f"budget={self.budget} at least the best {least} must be trained on all folds, as "
                f"else more than {LEFT_OUT:.0%} of all searches are won by others; write race: "
                f"[{math.ceil(100 * least / self.trials) / 100}], or race: [] for none"
            )
        if not least <= self.retrain_best <= finalists:
            raise ValueError(
                f"retrain_best={self.retrain_best} of trials={self.trials} with budget="
                f"{self.budget}: at least the best {least} must be retrained, since else more than "
                f"{LEFT_OUT:.0%} of all searches are won by others, and at most {finalists}; "
                "leave it out to have the least"
            )
        return self

    @property
    def settings(self) -> int:
        return self.retrain_best or self.trials


def num_raced(trials: int, share: float) -> int:
    """Return how many trials of a search a fraction of them is."""
    return math.ceil(round(share * trials, 9))


#: The largest fraction of subsets whose best trial may be one that is not retrained.
LEFT_OUT = 0.02


def least_retrained(trials: int, budget: int) -> int:
    """Return how many of the best trials must be retrained so that few subsets are left out.

    A subset of ``budget`` trials is left out if none of its trials is retrained.
    """
    allowed = LEFT_OUT * math.comb(trials, budget)
    return next(n for n in itertools.count(1) if math.comb(trials - n, budget) <= allowed)


KINDS: dict[str, type[_AnySearch]] = {
    "one": OneSearch,
    "repeated": RepeatedSearches,
    "subsets": SubsetsSearch,
}
#: The keys of all kinds.
ALL_KEYS = {**RepeatedSearches.model_fields, **SubsetsSearch.model_fields}.keys()


def of_kind(search: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """Return a search as one of that kind, without the keys that only other kinds have."""
    # Validation reports an unknown kind.
    others = ALL_KEYS - KINDS[kind].model_fields if str(kind) in KINDS else {}
    return {key: search[key] for key in search if key not in others} | {"kind": kind}


def kept_keys(search: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a search keeps if a YAML or an override changes some of its keys.

    If the changes name a kind, only the keys of that kind are kept. If they set fewer trials than
    the search has start-up trials, the number of start-up trials is reduced.
    """
    if "kind" in changes:
        search = of_kind(search, changes["kind"])
    trials, startup = changes.get("trials"), search.get("startup_trials")
    if isinstance(trials, int) and isinstance(startup, int):
        # Validation reports a number of trials below 1.
        return {**search, "startup_trials": min(max(1, trials), startup)}
    return search


def _from_earlier_versions(search: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the kind to a search of an earlier version, which had the keys of all kinds.

    The keys of other kinds are dropped.
    """
    if "kind" in search or not {"budget", "repeats"} <= search.keys():
        return search
    kind = "subsets" if search["budget"] else "repeated" if search["repeats"] > 1 else "one"
    return of_kind({key: value for key, value in search.items() if value is not None}, kind)


def _with_kind(search: Any) -> Any:
    """Return a search with its kind, by default ``one``; refuse a key of another kind."""
    if not isinstance(search, Mapping):
        return search
    search = {"kind": "one", **_from_earlier_versions(search)}
    for key in sorted(search.keys() - of_kind(search, search["kind"])):  # the first, if any
        kinds = [name for name, model in KINDS.items() if key in model.model_fields]
        raise ValueError(
            f"{key}={search[key]} belongs to the kind {' or '.join(kinds)}, but this search is of "
            f"the kind {search['kind']}; write kind: {kinds[-1]}, or leave out {key}"
        )
    return search


Search = Annotated[
    OneSearch | RepeatedSearches | SubsetsSearch,
    Field(discriminator="kind"),
    BeforeValidator(_with_kind),
]
