"""What a report costs: CPU seconds and memory of `reality-check report`, by methods and searches.

    python benchmarks/reporting.py
    python benchmarks/reporting.py --methods 4 --searches 1 --trials 50 --reproductions 10

The first takes under 10 CPU seconds (9.4 on a shared core of a Xeon): 4 for the figures, 2 for
imports, 2 for the importance of parameters. PNGs and PDFs of every figure, and PyTorch, took
another 17.

Nothing is trained: the trials are made up, the output folder, its studies and the scores of every
query are real. The report is written by the command in a process of its own, imports included.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from reality_check.config.compose import compose
from reality_check.config.metrics import METRICS, Stage
from reality_check.evaluation.scoring import Metrics
from reality_check.launch.check import check
from reality_check.launch.open_folder import open_folder
from reality_check.launch.trial_runner import TrialRunner
from reality_check.launch.work_loop import WorkLoop, work_on
from reality_check.studies.plan import StudyState
from reality_check.studies.trial import TrialContext, TrialResult
from reality_check.training.prepared_experiment import PreparedExperiment
from reality_check.utils.seeds import derive

#: Evaluations of a training.
_EVALUATIONS = 20


class MadeUp(TrialRunner):
    """Finds something by chance, and keeps it as a real trial does."""

    def do(self, study: StudyState, context: TrialContext) -> TrialResult:
        """Make up one trial."""
        draw = random.Random(derive(0, *study.planned.key, context.trial_index))
        level = 0.25 + derive(0, study.method) % 100 / 2000 + draw.gauss(0, 0.01)
        curve = [[2 * step, level * (1 - 0.8**step)] for step in range(1, _EVALUATIONS + 1)]
        folds = self.prepared.protocol.split.folds
        attributes = {
            "fold_values": [level] * folds,
            "fold_epochs": [2 * _EVALUATIONS] * folds,
            "follow_up_epochs": [0] * folds,
            "epochs_spent": [2 * _EVALUATIONS] * folds,
            "cut_short": [[]] * folds,
            "curves": [curve] * folds,
        }
        if study.stage is Stage.BASELINES:
            rows = {"raw pixels": 0.05, "untrained embedder": 0.06}
            scores = {name: dict.fromkeys(METRICS, value) for name, value in rows.items()}
            return TrialResult(0.0, {"scores": scores})
        if study.stage is Stage.SEARCH:
            return TrialResult(level, attributes)
        categories = ["complete"] if study.stage is Stage.FINAL else ["aggregate", "ensemble"]
        measured = {name: self._measured(level, derive(1, draw.random())) for name in categories}
        method = self.prepared.method(study.method)
        self.scorer.keep_queries(method, study.stage, context.trial_index, measured)
        return TrialResult(level, {**attributes, "scores": measured})

    def _measured(self, level: float, seed: int) -> Metrics:
        """Scores of every query, and their means."""
        draw = np.random.default_rng(seed)
        queries = len(self.prepared.test_set)
        scores = {name: np.clip(draw.normal(level, 0.2, queries), 0, 1) for name in METRICS}
        return Metrics({name: float(values.mean()) for name, values in scores.items()}, scores)


def main(arguments: Sequence[str] | None = None) -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    sizes = {"methods": 10, "searches": 5, "trials": 10, "reproductions": 2, "classes": 100}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="reporting-") as folder:
        out = Path(folder) / "out"
        make(options, out)
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-m", "reality_check", "report", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        size = sum(path.stat().st_size for path in out.glob("report.*"))
    what = ", ".join(f"{getattr(options, name)} {name}" for name in sizes)
    print(f"{what}: {cpu:.1f} CPU seconds, {wall:.1f} s of wall time, ", end="")
    print(f"{after.ru_maxrss / 1024:.0f} MB at most, {size / 1e6:.1f} MB written")


def make(options: argparse.Namespace, out: Path) -> None:
    """An output folder in which all is done but the report."""
    methods = [
        {"base": "quick/normalized_softmax", "name": f"m{n}"} for n in range(options.methods)
    ]
    search = {"kind": "repeated", "trials": options.trials, "repeats": options.searches}
    images = {"base": "glyphs", "classes": 2 * options.classes, "images_per_class": 10}
    experiment = compose(
        {
            "name": "reporting",
            "dataset": images,
            "model": "conv4",
            "protocol": {
                "base": "quick_one_search",
                "search": {**search, "sampler": "random"},
                "reproductions": options.reproductions,
            },
            "methods": methods,
            "device": "cpu",
        }
    )
    checked = check(experiment)
    with open_folder(checked, out) as recorded:
        prepared = PreparedExperiment(recorded.experiment, checked.dataset)
        work_on([WorkLoop(recorded, MadeUp(prepared, out))])


if __name__ == "__main__":
    main()
