"""The typed form of an experiment: the keys of its YAML, with types, ranges and defaults.

Unknown keys are errors.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, ValidationError, field_validator, model_validator
from typing_extensions import Self

from reality_check.config.claims import Claim
from reality_check.config.command import Command
from reality_check.config.datasets import Dataset
from reality_check.config.method import Control, Method
from reality_check.config.metrics import METRICS
from reality_check.config.model import Model
from reality_check.config.protocol import Protocol
from reality_check.config.published_scores import PublishedResults
from reality_check.config.report import Report
from reality_check.config.slurm import Slurm
from reality_check.config.training import Training
from reality_check.config.types import RESULT_NEUTRAL, TABLE_NEUTRAL, MayDiffer, Name
from reality_check.config.values import Strict, choices_of, find_searched
from reality_check.utils.errors import every
from reality_check.utils.own_names import RESERVED
from reality_check.utils.passwords import without_password
from reality_check.utils.seeds import derive
from reality_check.utils.text import duplicates, nearest


class Experiment(Strict):
    """One YAML: a data set, a model, a protocol, and the methods to compare."""

    name: Annotated[Name, TABLE_NEUTRAL]
    """Name of the experiment and of its folder, runs/NAME; by default the file's."""
    dataset: Dataset
    """The images: a name (reality-check show datasets) or a mapping with a reader."""
    model: Model
    """The network: a name (reality-check show models) or a mapping with a trunk."""
    protocol: Protocol
    """The rules that all methods share: a name (reality-check show protocols), or a mapping with a
    base and what differs."""
    methods: Annotated[list[Method], TABLE_NEUTRAL] = Field(min_length=1)
    """What is compared: names (reality-check show methods), mappings with a loss, and {from: PACK}
    for methods that have results."""
    controls: Annotated[list[Name | Control], TABLE_NEUTRAL] = Field(default_factory=list)
    """Methods to run a second time under another name, with other seeds: names, or {of: NAME,
    draws: shared} for a copy that draws the same random trials as all methods."""
    claims: list[Claim] = Field(default_factory=list)
    """What the experiment should show, written down before it runs; decided by tests."""
    published_results: Annotated[PublishedResults | None, RESULT_NEUTRAL] = None
    """Numbers that a paper printed, shown next to the measured ones."""
    variant: str | None = None
    """Name of the one of the file's `variants` to use."""
    seed: Annotated[NonNegativeInt, TABLE_NEUTRAL] = 0
    """Seed from which all random choices are derived."""
    device: Annotated[str, RESULT_NEUTRAL] = "auto"
    """auto, cpu, mps, cuda or cuda:N. auto takes a GPU where there is one."""
    storage: Annotated[str | None, TABLE_NEUTRAL] = None
    """Database of the searches, if several machines work: server (of reality-check storage serve),
    or such as postgresql+psycopg://USER@HOST/NAME. By default studies.db in the output folder."""
    slurm: Annotated[Slurm, RESULT_NEUTRAL] = Field(default_factory=Slurm)
    """What one worker's job requests from a SLURM cluster."""
    command: Annotated[Command | None, RESULT_NEUTRAL] = None
    """How one worker's job is submitted to another scheduler, asked for and ended."""
    report: Annotated[Report, RESULT_NEUTRAL] = Field(default_factory=Report)
    """Optional content of the report."""
    studies: Annotated[str | None, RESULT_NEUTRAL] = None
    """Written by a run: prefix of the names of its studies in a shared storage."""
    code: Annotated[dict[str, str], MayDiffer("runs", ("data set from",))] = Field(
        default_factory=dict
    )
    """Written by a run: fingerprints of the images and of your own code."""

    @field_validator("device")
    @classmethod
    def _check_device(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value):
            raise ValueError(f"device must be auto, cpu, mps, cuda or cuda:N, got {value!r}")
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [method.name.lower() for method in self.methods]
        reserved = [name for name in names if RESERVED.fullmatch(name)]
        if reserved:
            raise ValueError(
                f"a method cannot be named {reserved[0]!r}: the output folder, or Windows, keeps "
                "that name for itself; give it another name"
            )
        repeated = duplicates(names)
        if repeated:
            raise ValueError(f"two methods are named {repeated[0]!r}; give one another name")
        checks: list[Callable[[], None]] = [
            *(
                partial(check, method)
                for method in self.methods
                for check in (self._check_batch, self._check_model, self._check_trials)
            ),
            self._check_phases,
            self._check_starts,
            self._check_claims,
            self._check_fixed,
            partial(self._check_published, names),
        ]
        every(checks, ValueError)  # reports the mistakes of all checks together
        return self

    def _check_batch(self, method: Method) -> None:
        batch_sizes = self.training_of(method).batch_sizes
        for size, per_class in itertools.product(batch_sizes, choices_of(method.samples_per_class)):
            if per_class is not None and (size % per_class or per_class > size):
                raise ValueError(
                    f"method {method.name!r}: samples_per_class={per_class} does not divide "
                    f"batch_size={size}; choose a divisor of {size}"
                )

    def _check_trials(self, method: Method) -> None:
        if method.trials is not None and self.protocol.search.trials_per_parameter is None:
            raise ValueError(
                f"method {method.name!r}: trials={method.trials}, but all methods get the same "
                "number of trials; write protocol.search.trials, or "
                "protocol.search.trials_per_parameter for a number by what each searches"
            )

    def _check_starts(self) -> None:
        """Check that searches start from other methods' winners, and do not wait for each other."""
        for method in self.methods:
            start_keys = [key for key in ("starts_from", "warm_start") if getattr(method, key)]
            if len(start_keys) > 1:
                raise ValueError(
                    f"method {method.name!r} has starts_from and warm_start, but a search has one "
                    "first trial; leave one out"
                )
            if start_keys and self.protocol.search.kind == "subsets":
                raise ValueError(
                    f"method {method.name!r} has {start_keys[0]}, but all trials of searches of "
                    f"the kind subsets are drawn at random; remove {start_keys[0]}, or write "
                    "protocol.search.kind: repeated"
                )
        start_methods = {m.name: m.starts_from.method for m in self.methods if m.starts_from}
        for name, start_method in start_methods.items():
            if start_method not in {method.name for method in self.methods}:
                known = [method.name for method in self.methods if method.name != name]
                raise ValueError(
                    f"method {name!r} starts from {start_method!r}, which is not one of the "
                    f"methods: {', '.join(known)}"
                )
            chain = [name]
            while chain[-1] in start_methods:
                chain.append(start_methods[chain[-1]])
                if chain[-1] in chain[:-1]:
                    raise ValueError(
                        f"the searches wait for each other ({' -> '.join(chain)}); remove one "
                        "starts_from"
                    )

    def _check_published(self, names: list[str]) -> None:
        """Check that published results are of methods, whose ``names`` are in lower case."""
        for name in self.published_results.methods() if self.published_results else ():
            if name.lower() not in names:
                raise ValueError(
                    f"published_results name {name!r}, which is not one of the methods; methods: "
                    f"{', '.join(names)}"
                )

    def _check_model(self, method: Method) -> None:
        try:
            self.model_of(method)
        except ValidationError as error:
            # The reason is the message of a check of the model, or else that of pydantic.
            details = error.errors(include_url=False)[0]
            key = ".".join(["model", *map(str, details["loc"])])
            reason = details.get("ctx", {}).get("error", details["msg"])
            raise ValueError(f"method {method.name!r}: {key}: {reason}") from None

    def _check_phases(self) -> None:
        """Check that every change of a loss happens before the last epoch that may be selected."""
        for method in self.methods:
            training, two_phases = self.training_of(method), self.two_phases(method)
            if two_phases and training.max_epochs < 2:
                raise ValueError(
                    f"method {method.name!r} has a second phase, so its training needs two epochs "
                    f"at least, but max_epochs={training.max_epochs}; write "
                    "protocol.training.max_epochs: 2 or more"
                )
            last = training.selects_among(two_phases)
            for name, schedule in method.schedules.items():
                if schedule.length >= last:
                    raise ValueError(
                        f"method {method.name!r}: the schedule of {name} changes it after epoch "
                        f"{schedule.length:g}, but at most {last} are trained before the best of "
                        "them is selected; write a shorter one (epochs: null is as long as the "
                        "training), or more max_epochs"
                    )

    def _check_claims(self) -> None:
        """Check that claims have different names and are about what is measured."""
        names = [claim.name for claim in self.claims]
        repeated = duplicates(names)
        if repeated:
            raise ValueError(f"two claims are named {repeated[0]!r}; give one another name")
        known: dict[str, list[str]] = {
            "method": [method.name for method in self.methods],
            "category": list(self.protocol.categories),
            "metric": [*METRICS, *self.protocol.final_metrics],
        }
        for claim in self.claims:
            for measured in itertools.chain.from_iterable(claim.comparisons()):
                for kind, allowed in known.items():
                    value = getattr(measured, kind)
                    if value not in allowed:
                        raise ValueError(
                            f"claim {claim.name!r}: this experiment has no {kind} {value!r}."
                            f"{nearest(value, allowed)} Write one of {', '.join(allowed)}"
                        )

    def _check_fixed(self) -> None:
        """Check that every value is fixed if there is no search."""
        if self.protocol.selects_on == "validation":
            return
        for method in self.methods:
            rates = {}
            for part in ("trunk", "embedder", "loss"):
                own_rate = getattr(method.learning_rates, part)
                shared_rate = getattr(self.training_of(method).optimizers, part).lr
                rates[part] = shared_rate if own_rate is None else own_rate
            tunable = {
                "arguments": method.arguments,
                "miner": method.miner,
                "learning_rates": rates | method.learning_rates.loss_parts,
                "phase2": dict(method.phase2 or {}),
                "schedules": {name: dict(item) for name, item in method.schedules.items()},
                "training": {"batch_size": self.training_of(method).batch_size},
                "samples_per_class": method.samples_per_class,
            }
            searched = [*find_searched(tunable, ""), *self.model_of(method).searched().items()]
            # A second phase begins when validation no longer improves.
            if searched or self.training_of(method).phases == "two":
                name = searched[0][0] if searched else "phase2"
                raise ValueError(
                    f"method {method.name!r} searches {name}, but selects_on: "
                    f"{self.protocol.selects_on} has no search; write a fixed value"
                )

    def trained(self) -> Experiment:
        """Return the experiment without the methods whose results come from packs."""
        trained = [method for method in self.methods if method.packed is None]
        return self.model_copy(update={"methods": trained})

    def method(self, name: str) -> Method:
        """Return the method of that name."""
        return next(method for method in self.methods if method.name == name)

    def seed_of(self, method: Method) -> int:
        """Return the seed from which a method's seeds are derived; controls have their own."""
        return self.seed if method.control_of is None else derive(self.seed, "control", method.name)

    def draw_seed_of(self, method: Method) -> int:
        """Return the seed of a method's random draws, the experiment's where these are shared."""
        return self.seed if method.control_draws == "shared" else self.seed_of(method)

    def model_of(self, method: Method) -> Model:
        """Return the model that a method trains: the experiment's with the method's changes."""
        return self.model.changed(method.model) if method.model else self.model

    def training_of(self, method: Method) -> Training:
        """Return the training settings of a method."""
        return method.training or self.protocol.training

    def two_phases(self, method: Method) -> bool:
        """Return whether a method's networks are trained in two phases."""
        return method.phase2 is not None or self.training_of(method).phases == "two"

    def trials_of(self, method: Method) -> int:
        """Return the number of trials of each of a method's searches.

        If it depends on the number of searched parameters, it is known only after
        :func:`reality_check.training.preflight.with_trials` has counted these.
        """
        return method.trials or self.protocol.search.trials

    def plain(self, **options: Any) -> dict[str, Any]:
        """Return plain data that loads to the same experiment; passwords are left out."""
        plain = super().plain(**options)
        if plain.get("storage"):
            plain["storage"] = without_password(plain["storage"])
        return plain
