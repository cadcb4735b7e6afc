"""How often the test of a pair errs, what it finds, and whether intervals hold: simulations.

    python benchmarks/pairs.py benchmarks/banks/caltech101_lite0.csv
    python benchmarks/pairs.py benchmarks/banks/omniglot_lite0.csv
    python benchmarks/pairs.py benchmarks/banks/curves_ms.csv benchmarks/banks/curves_ns.csv
    python benchmarks/pairs.py cones
    python benchmarks/pairs.py benchmarks/banks/caltech101_lite0.csv --repeated

A Gaussian process is fitted to the validation and the test scores of each method of a bank
(``benchmarks/trial_bank.py``) as functions of its hyper-parameters. A new trial draws these anew,
takes the two scores there, and adds the deviations of a random trial of the bank from its own
fitted scores; each retraining adds noise of the size that two trainings of a trial show. Two
methods share the draws of every parameter of the same name, as ``reality_check`` draws them.

``cones`` are made-up surfaces instead: a score falls with the distance from the best point, which
lies off the centre of the cube.

Printed, in percent: how often two methods with the *same* expected score theta(N) are called
different, by what they share (the nulls); how often one of the six pairs of four such methods is,
after Holm (family); how often true differences are found; how often the 95 % interval of the
difference holds it; and how often a method's own interval holds its theta(N). The tests are
Welch's, of two estimates, with Satterthwaite's degrees of freedom and with those of one estimate
(``own``); the joint jackknife, which deletes trial k of both methods at once, with multiples of the
degrees of freedom of one estimate, and with one more than these (``joint + 1``, at most the number
of trials minus 1); and ``larger``, Welch's test with the larger error of both where draws are
shared. ``shipped`` is what reports use: joint + 1 where two methods share the draws of more than
half of their parameters, joint 1 where they share fewer, and Welch's with the degrees of one
estimate where none. For repeated searches (``--repeated``), joint 1 is the paired t-test by search,
and fewer shared draws are tested by ``larger``, none by Welch's.
"""

from __future__ import annotations

import argparse
import csv
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from reality_check.statistics import (
    jackknife_error,
    skew_allowance,
    subset_degrees,
    subset_estimates,
)

Array = NDArray[np.float64]

LEVEL = 0.05
#: The trials of the search, of which the best are retrained, and the budget N.
PLANS = ((50, 15, 10), (16, 16, 5), (60, 18, 10), (100, 30, 10))
#: Searches, their trials, and retrainings of each winner.
REPEATED = ((5, 10, 2), (3, 16, 3), (10, 5, 1))
MULTIPLES = (1.0, 1.5, 2.0)
RATE = "learning_rates.embedder"
STEPS = (25, 50, 75, 100, 150, 200)


@dataclass(frozen=True, eq=False)
class Surface:
    """A method: its scores as functions of its hyper-parameters, in points.

    Attributes:
        name: of the method.
        parameters: the names of its hyper-parameters.
        scores: from positions (n, d) in the unit cube to validation and test scores, (n, 2).
        deviations: of the bank's trials from these, (trials, 2).
        noise: standard deviation of a retraining.
        mirrored: parameters whose axis is turned round, which leaves theta as it is.
        own: parameters with draws of their own, not shared with other methods.
        lift: what is added to test scores.
    """

    name: str
    parameters: tuple[str, ...]
    scores: Callable[[Array], Array]
    deviations: Array
    noise: float
    mirrored: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    lift: float = 0.0

    def trials(
        self, draws: Mapping[str, Array], generator: np.random.Generator, noise: float
    ) -> tuple[Array, Array]:
        """Validation and test scores of trials at shared draws, with noise of this sd."""
        shape = next(iter(draws.values())).shape
        axes = [generator.random(shape) if p in self.own else draws[p] for p in self.parameters]
        axes = [
            1 - axis if p in self.mirrored else axis
            for p, axis in zip(self.parameters, axes, strict=True)
        ]
        scores = self.scores(np.stack(axes, -1).reshape(-1, len(axes)))
        scores += self.deviations[generator.integers(len(self.deviations), size=len(scores))]
        validation, test = (scores[:, column].reshape(shape) for column in (0, 1))
        return validation, test + self.lift + noise * generator.standard_normal(shape)

    @functools.cached_property
    def _thetas(self) -> dict[int, float]:
        return {}

    def theta(self, budget: int, searches: int = 100_000) -> float:
        """The expected test score of the winner of a search."""
        if budget not in self._thetas:
            generator = np.random.default_rng(1)
            total = 0.0
            for _ in range(10):
                draws = draw([self], (searches // 10, budget), generator)
                validation, test = self.trials(draws, generator, 0.0)
                best = validation.argmax(-1)[:, None]
                total += float(np.take_along_axis(test, best, -1).mean())
            self._thetas[budget] = total / 10
        return self._thetas[budget]


def draw(
    surfaces: Sequence[Surface], shape: tuple[int, int], generator: np.random.Generator
) -> dict[str, Array]:
    """One draw of every parameter for all methods."""
    names = dict.fromkeys(name for surface in surfaces for name in surface.parameters)
    return {name: generator.random(shape) for name in names}


def share(first: Surface, second: Surface) -> float:
    """The share of the parameters whose draws both methods have in common."""
    common = [{*surface.parameters} - {*surface.own} for surface in (first, second)]
    return len(common[0] & common[1]) / max(len(first.parameters), len(second.parameters))


def read(banks: Sequence[Path]) -> list[Surface]:
    """The surfaces of a bank, in alphabetical order, or of banks with curves, one each."""
    surfaces = []
    for bank in banks:
        with bank.open(newline="") as file:
            rows = list(csv.DictReader(file))
        if "params" not in rows[0]:
            surfaces.append(read_curves(bank.stem, rows))
            continue
        for name in sorted({row["method"] for row in rows}):
            mine = [row for row in rows if row["method"] == name]
            params = [dict(item.split("=") for item in row["params"].split()) for row in mine]
            values = np.array([[float(each[key]) for key in params[0]] for each in params])
            columns = ("validation", "test_0", "test_1")
            scores = 100 * np.array([[float(row[key]) for key in columns] for row in mine])
            surfaces.append(fitted(name, tuple(params[0]), values, scores))
    return surfaces


def read_curves(name: str, rows: Sequence[Mapping[str, str]]) -> Surface:
    """The surface of a bank with curves, which lacks the hyper-parameters.

    The rank by validation takes their place: as one parameter, which no other method shares. The
    search's own networks and the retraining are two trainings of a trial.
    """
    folds = [
        [[float(row[f"f{fold}_s{step}"]) for step in STEPS] for fold in range(4)] for row in rows
    ]
    validation = np.array(folds).max(-1).mean(-1)
    tests = [[float(row[key]) for key in ("test_search", "test_retrain")] for row in rows]
    scores = np.concatenate([validation[:, None], tests], 1)
    return fitted(name, (f"rank in {name}",), validation[:, None], scores)


def fitted(name: str, parameters: tuple[str, ...], values: Array, scores: Array) -> Surface:
    """The surface of a method.

    Args:
        name: of the method.
        parameters: d names.
        values: of the parameters, (trials, d).
        scores: on validation, and of two trainings on test classes, (trials, 3), in points.
    """
    # Ranks are the draws of a random search, whatever the scale of the range.
    unit = (values.argsort(0).argsort(0) + 0.5) / len(values)
    targets = np.stack([scores[:, 0], scores[:, 1:].mean(1)], 1)
    models = []
    for column in targets.T:
        kernel = column.var() * RBF(np.full(len(parameters), 0.5), (0.05, 5.0)) + WhiteKernel(
            0.1 * column.var(), (1e-3, column.var() + 1e-3)
        )
        model = GaussianProcessRegressor(kernel, normalize_y=False, random_state=0)
        models.append((model.fit(unit, column - column.mean()), column.mean()))

    def predict(positions: Array) -> Array:
        parts = np.array_split(positions, len(positions) // 20_000 + 1)
        columns = []
        for model, mean in models:
            kernel = model.kernel_.k1
            columns.append(mean + np.concatenate([kernel(x, unit) @ model.alpha_ for x in parts]))
        return np.stack(columns, 1)

    deviations = targets - predict(unit)
    deviations -= deviations.mean(0)
    fit = 1 - deviations.var(0) / targets.var(0)
    noise = float(np.sqrt(((scores[:, 1] - scores[:, 2]) ** 2).mean() / 2))
    # The mean of two trainings holds half of a training's variance.
    deviations[:, 1] *= np.sqrt(max(0.0, 1 - noise**2 / 2 / deviations[:, 1].var()))
    print(f"{name}: R² of validation and test {fit[0]:.2f}, {fit[1]:.2f}; noise {noise:.2f}")
    return Surface(name, parameters, predict, deviations, noise)


def cones() -> list[Surface]:
    """Made-up surfaces of two and of four hyper-parameters, with a sharp optimum."""

    def cone(best: Sequence[float]) -> Callable[[Array], Array]:
        def scores(positions: Array) -> Array:
            score = 30 - 12 * np.linalg.norm(positions - np.asarray(best), axis=-1)
            return np.stack([score, score], 1)

        return scores

    deviations = np.random.default_rng(2).normal(0, 0.5, (500, 2))
    names = (RATE, "arguments.b", "arguments.c", "arguments.d")
    best = (0.3, 0.8, 0.4, 0.65)
    return [
        Surface(f"cone in {size}", names[:size], cone(best[:size]), deviations, 0.5)
        for size in (2, 4)
    ]


@dataclass(frozen=True)
class Subsets:
    """All subsets of one search of ``trials``, of which the best are retrained."""

    trials: int
    retrained: int
    budget: int

    def __str__(self) -> str:
        return f"{self.trials} trials, {self.retrained} retrained, N = {self.budget}"

    def estimates(
        self, surface: Surface, draws: Mapping[str, Array], generator: np.random.Generator
    ) -> tuple[Array, Array]:
        """Estimates of a method, (campaigns,), and without each unit, (campaigns, units)."""
        validation, test = surface.trials(draws, generator, surface.noise)
        kept = np.argsort(np.argsort(validation, -1), -1) >= self.trials - self.retrained
        return subset_estimates(validation, np.where(kept, test, np.nan), self.budget)

    def shape(self, campaigns: int) -> tuple[int, int]:
        """The shape of the draws."""
        return campaigns, self.trials

    @property
    def degrees(self) -> float:
        """Degrees of freedom of an estimate."""
        return subset_degrees(self.trials, self.budget)

    widening = 1.0
    few_shared, none_shared = "joint 1", "Welch, own"


@dataclass(frozen=True)
class Repeated:
    """Searches of ``budget`` trials, whose winners are retrained."""

    searches: int
    budget: int
    retrainings: int

    def __str__(self) -> str:
        parts = (self.searches, self.budget, self.retrainings)
        return "{} searches of {} trials, {} retrainings each".format(*parts)

    def estimates(
        self, surface: Surface, draws: Mapping[str, Array], generator: np.random.Generator
    ) -> tuple[Array, Array]:
        """Means of searches, (campaigns,), and without each search, (campaigns, searches)."""
        validation, test = surface.trials(draws, generator, 0.0)
        won = np.take_along_axis(test, validation.argmax(-1)[:, None], -1)
        noise = surface.noise / np.sqrt(self.retrainings)
        won = (won + noise * generator.standard_normal(won.shape)).reshape(-1, self.searches)
        return won.mean(-1), (won.sum(-1, keepdims=True) - won) / (self.searches - 1)

    def shape(self, campaigns: int) -> tuple[int, int]:
        """The shape of the draws."""
        return campaigns * self.searches, self.budget

    @property
    def degrees(self) -> float:
        """Degrees of freedom of an estimate."""
        return self.searches - 1.0

    few_shared, none_shared = "larger", "Welch"

    @property
    def widening(self) -> float:
        """What the intervals of single estimates are multiplied by."""
        return skew_allowance(self.budget)


@dataclass
class Campaigns:
    """Many campaigns of some methods after one plan; the table of a plan is printed row by row."""

    plan: Subsets | Repeated
    campaigns: int
    generator: np.random.Generator
    worst: dict[str, float]

    def run(self, surfaces: Sequence[Surface]) -> list[tuple[Array, Array]]:
        """The estimates of each method, see :meth:`Subsets.estimates`."""
        draws = draw(surfaces, self.plan.shape(self.campaigns), self.generator)
        return [self.plan.estimates(surface, draws, self.generator) for surface in surfaces]

    def tests(
        self,
        first: tuple[Array, Array],
        second: tuple[Array, Array],
        shared: float,
        gap: float = 0.0,
    ) -> dict[str, tuple[Array, Array]]:
        """The p-values of each test, and whether the interval holds the true difference."""
        (a, without_a), (b, without_b) = first, second
        u, v = jackknife_error(without_a) ** 2, jackknife_error(without_b) ** 2
        joint = jackknife_error(without_a - without_b)
        own = self.plan.degrees
        errors = {"Welch": (np.sqrt(u + v), own * (u + v) ** 2 / (u**2 + v**2))}
        errors["Welch, own"] = np.sqrt(u + v), np.full(len(a), own)
        errors |= {f"joint {m:g}": (joint, np.full(len(a), m * own)) for m in MULTIPLES}
        errors["joint + 1"] = (joint, np.full(len(a), min(own + 1, without_a.shape[-1] - 1)))
        larger = np.maximum(joint, errors["Welch"][0]), errors["Welch"][1]
        errors["larger"] = larger if shared else errors["Welch"]
        few = self.plan.few_shared if shared else self.plan.none_shared
        errors["shipped"] = errors["joint + 1" if shared > 0.5 else few]
        return {
            name: (
                2 * stdtr(degrees, -np.abs(a - b) / error),
                np.abs(a - b - gap) <= stdtrit(degrees, 1 - LEVEL / 2) * error,
            )
            for name, (error, degrees) in errors.items()
        }

    def pair(self, label: str, first: Surface, second: Surface, null: bool = False) -> None:
        """Print how often the two are called different, or rightly so and how intervals hold."""
        gap = 0.0
        if not null:
            gap = first.theta(self.plan.budget) - second.theta(self.plan.budget)
            label += f", {gap:+.2f}"
        estimates = self.run([first, second])
        found = self.tests(*estimates, share(first, second), gap)
        right = (estimates[0][0] - estimates[1][0]) * gap >= 0
        rates = {name: 100 * float(((p < LEVEL) & right).mean()) for name, (p, _) in found.items()}
        self.print(label, rates, null)
        if not null:
            covers = {name: 100 * float(held.mean()) for name, (_, held) in found.items()}
            self.print(f"{label}, interval of the difference", covers)

    def family(self, label: str, surfaces: Sequence[Surface]) -> None:
        """Print how often at least one pair of equal methods is called different, after Holm."""
        estimates = self.run(surfaces)
        smallest: dict[str, Array] = {}
        pairs = list(itertools.combinations(range(len(surfaces)), 2))
        for i, j in pairs:
            shared = share(surfaces[i], surfaces[j])
            for name, (p, _) in self.tests(estimates[i], estimates[j], shared).items():
                smallest[name] = np.minimum(smallest.get(name, p), p)
        level = LEVEL / len(pairs)
        rates = {name: 100 * float((p < level).mean()) for name, p in smallest.items()}
        self.print(label, rates, null=True)

    def coverage(self, surface: Surface) -> None:
        """Print how often the interval of one method holds its theta."""
        ((mean, without),) = self.run([surface])
        width = self.plan.widening * float(stdtrit(self.plan.degrees, 1 - LEVEL / 2))
        held = np.abs(mean - surface.theta(self.plan.budget)) <= width * jackknife_error(without)
        self.print(f"{surface.name}: interval of theta", {"one": 100 * float(held.mean())})

    def print(self, label: str, rates: Mapping[str, float], null: bool = False) -> None:
        """Print a row of the table."""
        print(row(label, *(f"{rate:.1f}" for rate in rates.values())), flush=True)
        if null:
            self.worst |= {n: max(self.worst.get(n, 0.0), rate) for n, rate in rates.items()}


def nulls(
    surface: Surface, others: Sequence[Surface], budget: int
) -> Iterator[tuple[str, Surface]]:
    """Methods with the same theta as ``surface``."""
    names = surface.parameters
    yield "same surface", surface
    if len(names) > 1:
        for name in names:
            yield f"{name.rpartition('.')[2]} mirrored", replace(surface, mirrored=(name,))
    yield "all mirrored", replace(surface, mirrored=names)
    if RATE in names:
        own = tuple(name for name in names if name != RATE)
        yield "one name shared", replace(surface, own=own)
        yield "one name shared, mirrored", replace(surface, own=own, mirrored=(RATE,))
    for other in others:
        yield f"{other.name} lifted", lifted(other, surface, budget)
    yield "own draws", replace(surface, own=names)


def lifted(other: Surface, surface: Surface, budget: int) -> Surface:
    """Another method with the theta of ``surface``."""
    return replace(other, lift=surface.theta(budget) - other.theta(budget))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("banks", type=Path, nargs="+", help="files, or cones")
    parser.add_argument("--plans", type=int, default=2, help="how many of the plans")
    parser.add_argument("--campaigns", type=int, default=10_000)
    parser.add_argument("--repeated", action="store_true", help="repeated searches")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.process_time()
    surfaces = cones() if str(options.banks[0]) == "cones" else read(options.banks)
    plans: list[Subsets | Repeated] = (
        [Repeated(*plan) for plan in REPEATED]
        if options.repeated
        else [Subsets(*plan) for plan in PLANS]
    )
    worst: dict[str, float] = {}
    for plan in plans[: options.plans]:
        columns = (
            "Welch",
            "Welch, own",
            *(f"joint {multiple:g}" for multiple in MULTIPLES),
            "joint + 1",
            "larger",
            "shipped",
        )
        print("\n" + row(plan, *columns) + "\n" + "|---" * (1 + len(columns)) + "|")
        generator = np.random.default_rng(options.seed)
        campaigns = Campaigns(plan, options.campaigns, generator, worst)
        for surface in surfaces:
            others = [other for other in surfaces if other is not surface]
            for null, twin in nulls(surface, others, plan.budget):
                campaigns.pair(f"{surface.name}: {null}", surface, twin, null=True)
            twins = [surface, replace(surface, mirrored=surface.parameters)]
            other = lifted(others[0], surface, plan.budget)
            campaigns.family(f"{surface.name}: family", [surface, *twins, other])
            private = [replace(each, own=each.parameters) for each in (surface, *twins, other)]
            campaigns.family(f"{surface.name}: family, own draws", private)
            better = replace(surface, lift=1.0)
            campaigns.pair(f"power, {surface.name} and itself lifted", surface, better)
            campaigns.coverage(surface)
        for first, second in itertools.combinations(surfaces, 2):
            label = f"power, {first.name} and {second.name}"
            campaigns.pair(label, first, second)
            private = replace(second, own=second.parameters)
            campaigns.pair(f"{label}, own draws", first, private)
    print("\nworst: " + ", ".join(f"{name} {rate:.1f}" for name, rate in worst.items()))
    print(f"{options.campaigns} campaigns a cell, {time.process_time() - start:.0f} CPU s")


def row(*cells: object) -> str:
    """A line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
