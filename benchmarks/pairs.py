"""How often the test of a pair errs, and what it finds: campaigns on surfaces fitted to banks.

    python benchmarks/pairs.py benchmarks/banks/caltech101_lite0.csv
    python benchmarks/pairs.py benchmarks/banks/omniglot_lite0.csv
    python benchmarks/pairs.py cones
    python benchmarks/pairs.py benchmarks/banks/caltech101_lite0.csv --repeated

A Gaussian process is fitted to the validation and the test scores of each method of a bank
(``benchmarks/trial_bank.py``) as functions of its hyper-parameters. A new trial draws these anew,
takes the two scores there, and adds the deviations of a random trial of the bank from its own
fitted scores; each retraining adds noise of the size that two retrainings of a trial show. Two
methods share the draws of every parameter of the same name, as ``reality_check`` draws them.

``cones`` are made-up surfaces instead: a score falls with the distance from the best point, which
lies off the centre of the cube.

Printed: how often two methods with the *same* expected score theta(N) are called different, by the
test and by what they share (the nulls), and how often true differences are found. The tests are
Welch's, of two estimates, and the joint jackknife, which deletes trial k of both methods at once,
with multiples of the degrees of freedom of one estimate; for repeated searches (``--repeated``) the
paired t-test by search.
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
from scipy.special import stdtr
from scipy.stats import ttest_ind, ttest_rel
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from reality_check.statistics import jackknife_error, subset_degrees, subset_estimates

Array = NDArray[np.float64]
Draws = Mapping[str, Array]

LEVEL = 0.05
#: The trials of the search, of which the best are retrained, and the budget N.
PLANS = ((50, 15, 10), (16, 16, 5), (60, 18, 10), (100, 30, 10))
#: Searches, their trials, and retrainings of each winner.
REPEATED = ((5, 10, 2), (3, 16, 3), (10, 5, 1))
MULTIPLES = (1.0, 1.5, 2.0)
RATE = "learning_rates.embedder"


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
        lift: what is added to test scores.
    """

    name: str
    parameters: tuple[str, ...]
    scores: Callable[[Array], Array]
    deviations: Array
    noise: float
    mirrored: tuple[str, ...] = ()
    lift: float = 0.0

    def trials(
        self, draws: Draws, generator: np.random.Generator, again: bool = True
    ) -> tuple[Array, Array]:
        """Validation and test scores of trials at these draws; ``again``: of a retraining each."""
        axes = [1 - draws[p] if p in self.mirrored else draws[p] for p in self.parameters]
        shape = axes[0].shape
        scores = self.scores(np.stack(axes, -1).reshape(-1, len(axes)))
        scores = (
            scores + self.deviations[generator.integers(len(self.deviations), size=len(scores))]
        )
        validation, test = (scores[:, column].reshape(shape) for column in (0, 1))
        noise = self.noise * generator.standard_normal(shape) if again else 0.0
        return validation, test + self.lift + noise

    @functools.cache  # noqa: B019
    def theta(self, budget: int, searches: int = 100_000) -> float:
        """The expected test score of the winner of a search."""
        generator = np.random.default_rng(1)
        total = 0.0
        for _ in range(10):
            shape = (searches // 10, budget)
            draws = {name: generator.random(shape) for name in self.parameters}
            validation, test = self.trials(draws, generator, again=False)
            best = validation.argmax(-1)[:, None]
            total += float(np.take_along_axis(test, best, -1).mean())
        return total / 10


def read(bank: Path) -> list[Surface]:
    """The surfaces of a bank, in alphabetical order."""
    with bank.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        fitted(name, [row for row in rows if row["method"] == name])
        for name in sorted({row["method"] for row in rows})
    ]


def fitted(name: str, rows: Sequence[Mapping[str, str]]) -> Surface:
    """The surface of a method."""
    params = [dict(item.split("=") for item in row["params"].split()) for row in rows]
    names = tuple(params[0])
    values = np.array([[float(each[key]) for key in names] for each in params])
    # Ranks are the draws of a random search, whatever the scale of the range.
    unit = (values.argsort(0).argsort(0) + 0.5) / len(values)
    columns = ("validation", "test_0", "test_1")
    scores = 100 * np.array([[float(row[key]) for key in columns] for row in rows])
    targets = np.stack([scores[:, 0], scores[:, 1:].mean(1)], 1)
    models = []
    for column in targets.T:
        kernel = column.var() * RBF(np.full(len(names), 0.5), (0.05, 5.0)) + WhiteKernel(
            0.1 * column.var(), (1e-3, column.var() + 1e-3)
        )
        model = GaussianProcessRegressor(kernel, normalize_y=False, random_state=0)
        models.append((model.fit(unit, column - column.mean()), column.mean()))

    def predict(positions: Array) -> Array:
        means = []
        for model, mean in models:
            kernel = model.kernel_.k1
            weights = model.alpha_
            means.append(
                mean
                + np.concatenate(
                    [
                        kernel(part, unit) @ weights
                        for part in np.array_split(positions, len(positions) // 20_000 + 1)
                    ]
                )
            )
        return np.stack(means, 1)

    deviations = targets - predict(unit)
    deviations -= deviations.mean(0)
    fit = 1 - deviations.var(0) / targets.var(0)
    noise = float(np.sqrt(((scores[:, 1] - scores[:, 2]) ** 2).mean() / 2))
    # The mean of two retrainings holds half of a retraining's variance.
    deviations[:, 1] *= np.sqrt(max(0.0, 1 - noise**2 / 2 / deviations[:, 1].var()))
    print(f"{name}: R² of validation and test {fit[0]:.2f}, {fit[1]:.2f}; noise {noise:.2f}")
    return Surface(name, names, predict, deviations, noise)


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


Draw = Callable[[np.random.Generator, tuple[int, int]], tuple[Draws, Draws]]


def sharing(first: Surface, second: Surface, shared: Sequence[str] | None = None) -> Draw:
    """Draws of two methods, of which those of all or some names of both are the same."""
    common = set(first.parameters) & set(second.parameters)
    common &= common if shared is None else set(shared)

    def draw(generator: np.random.Generator, shape: tuple[int, int]) -> tuple[Draws, Draws]:
        one = {name: generator.random(shape) for name in first.parameters}
        other = {n: one[n] if n in common else generator.random(shape) for n in second.parameters}
        return one, other

    return draw


def tests(
    first: Surface,
    second: Surface,
    draw: Draw,
    plan: tuple[int, int, int],
    campaigns: int,
    generator: np.random.Generator,
) -> dict[str, tuple[Array, Array]]:
    """The p-values of each test, and the differences, in many campaigns."""
    trials, best, budget = plan
    estimates = []
    for surface, draws in zip((first, second), draw(generator, (campaigns, trials)), strict=True):
        validation, test = surface.trials(draws, generator)
        kept = np.argsort(np.argsort(validation, -1), -1) >= trials - best
        estimates.append(subset_estimates(validation, np.where(kept, test, np.nan), budget))
    (a, without_a), (b, without_b) = estimates
    u, v = jackknife_error(without_a) ** 2, jackknife_error(without_b) ** 2
    own, gap = subset_degrees(trials, budget), a - b
    welch = own * (u + v) ** 2 / (u**2 + v**2)
    found = {"Welch": (2 * stdtr(welch, -np.abs(gap) / np.sqrt(u + v)), gap)}
    t = -np.abs(gap) / jackknife_error(without_a - without_b)
    for multiple in MULTIPLES:
        found[f"joint {multiple:g}"] = 2 * stdtr(multiple * own, t), gap
    return found


def repeated_tests(
    first: Surface,
    second: Surface,
    draw: Draw,
    plan: tuple[int, int, int],
    campaigns: int,
    generator: np.random.Generator,
) -> dict[str, tuple[Array, Array]]:
    """The same for repeated searches."""
    searches, budget, reproductions = plan
    means = []
    shape = (campaigns * searches, budget)
    for surface, draws in zip((first, second), draw(generator, shape), strict=True):
        validation, test = surface.trials(draws, generator, again=False)
        won = np.take_along_axis(test, validation.argmax(-1)[:, None], -1)
        noise = surface.noise / np.sqrt(reproductions) * generator.standard_normal(won.shape)
        means.append((won + noise).reshape(campaigns, searches))
    gap = means[0].mean(-1) - means[1].mean(-1)
    welch = ttest_ind(*means, axis=-1, equal_var=False).pvalue
    return {"Welch": (welch, gap), "paired": (ttest_rel(*means, axis=-1).pvalue, gap)}


def nulls(
    surface: Surface, others: Sequence[Surface], budget: int
) -> Iterator[tuple[str, Surface, Draw]]:
    """Methods with the same theta as ``surface``, and what their draws share."""
    yield "same surface", surface, sharing(surface, surface)
    for name in surface.parameters:
        twin = replace(surface, mirrored=(name,))
        yield f"{name.rpartition('.')[2]} mirrored", twin, sharing(surface, twin)
    twin = replace(surface, mirrored=surface.parameters)
    yield "all mirrored", twin, sharing(surface, twin)
    yield "one name shared", surface, sharing(surface, surface, [RATE])
    for other in others:
        lifted = replace(other, lift=surface.theta(budget) - other.theta(budget))
        yield f"{other.name} lifted", lifted, sharing(surface, lifted)
    yield "own draws", surface, sharing(surface, surface, [])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bank", type=Path, help="a file, or cones")
    parser.add_argument("--plans", type=int, default=len(PLANS), help="how many of the plans")
    parser.add_argument("--campaigns", type=int, default=10_000)
    parser.add_argument("--repeated", action="store_true", help="repeated searches")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.process_time()
    surfaces = cones() if str(options.bank) == "cones" else read(options.bank)
    names = ("Welch", *(f"joint {multiple:g}" for multiple in MULTIPLES))
    plans, test, head = PLANS, tests, "{} trials, {} retrained, N = {}"
    if options.repeated:
        names, plans, test = ("Welch", "paired"), REPEATED, repeated_tests
        head = "{} searches of {} trials, {} retrainings each"
    worst = dict.fromkeys(names, 0.0)
    for plan in plans[: options.plans]:
        generator = np.random.default_rng(options.seed)
        budget = plan[1] if options.repeated else plan[2]

        def rates(
            label: str, first: Surface, second: Surface, draw: Draw, gap: float = 0.0
        ) -> Array:
            """Print how often the two are called different, or rightly so."""
            found = test(first, second, draw, plan, options.campaigns, generator).values()  # noqa: B023
            shares = [100 * ((p < LEVEL) & (d * gap >= 0)).mean() for p, d in found]
            print(row(label, *(f"{share:.1f}" for share in shares)), flush=True)
            return np.array(shares)

        print("\n" + row(head.format(*plan), *names) + "\n" + "|---" * (1 + len(names)) + "|")
        for surface in surfaces:
            others = [other for other in surfaces if other is not surface]
            for null, twin, draw in nulls(surface, others, budget):
                found = rates(f"{surface.name}: {null}", surface, twin, draw)
                worst = {name: max(worst[name], found[n]) for n, name in enumerate(names)}
            better = replace(surface, lift=1.0)
            label = f"power, {surface.name} and itself one point above"
            rates(label, surface, better, sharing(surface, better), -1.0)
        for first, second in itertools.combinations(surfaces, 2):
            gap = first.theta(budget) - second.theta(budget)
            for what, shared in (("shared", None), ("own draws", [])):
                label = f"power, {first.name} and {second.name}, {gap:+.2f}, {what}"
                rates(label, first, second, sharing(first, second, shared), gap)
    print("\nworst: " + ", ".join(f"{name} {rate:.1f}" for name, rate in worst.items()))
    print(f"{options.campaigns} campaigns a cell, {time.process_time() - start:.0f} CPU s")


def row(*cells: object) -> str:
    """A line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
