"""Finished output folders whose records are made up: nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np

from reality_check.config import Experiment, load_experiment
from reality_check.config.metrics import CATEGORIES, METRICS, Stage
from reality_check.config.source_code import use_sources
from reality_check.evaluation.query_scores import QUERIES_FILE, packed, write_query_scores
from reality_check.evaluation.scoring import Metrics
from reality_check.launch.work_loop import WorkLoop, work_on
from reality_check.studies.output_folder import lock_experiment, query_scores_path
from reality_check.studies.plan import StudyState
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.studies.trial import TrialContext, TrialResult
from reality_check.utils.seeds import derive
from support.paths import TINY

CODE = {"dataset": "d" * 64}
#: Of the tiny experiment.
OVERRIDES = "protocol.reproductions=2", "protocol.categories=[aggregate,ensemble]", "device=auto"
_CLASSES, _EACH = 5, 4


class MadeUpRunner:
    """What a :class:`WorkLoop` takes for a runner; a result depends on seed, method and place.

    Args:
        experiment: whose trials are done.
        out_dir: its output folder, for the scores of queries.
        above: by method, how far its scores on the test classes are above those of the others.
    """

    def __init__(
        self, experiment: Experiment, out_dir: Path, above: Mapping[str, float] | None = None
    ) -> None:
        self._experiment, self._out_dir, self._above = experiment, out_dir, above or {}
        self.prepared = SimpleNamespace(device="cpu", dataset=None)  # loaded before the first trial
        self.done: list[str] = []

    def resources(self, stage: Stage) -> dict[str, Any]:
        return {"device": "cpu", "processes": 1}

    def on_progress(self, state: dict[str, Any]) -> None:
        pass

    def do(self, study: StudyState, context: TrialContext) -> TrialResult:
        index, seed = context.trial_index, self._experiment.seed
        self.done.append(study.method or str(study.stage))
        draw = np.random.default_rng(derive(seed, study.method, study.stage, study.search, index))
        about = {"seconds": 3600 * draw.uniform()}
        if study.stage is Stage.BASELINES:
            scores = {name: _means(_of_queries(draw, 0.2)) for name in ("raw pixels", "untrained")}
            return TrialResult(0.1, about | {"scores": scores})
        values = draw.uniform(0.3, 0.6, self._experiment.protocol.split.folds).tolist()
        about |= {
            "fold_values": values,
            "fold_epochs": [2 for _ in values],
            "follow_up_epochs": [0 for _ in values],
            "epochs_spent": [3 for _ in values],
            "cut_short": [[] for _ in values],
            "curves": [[[-1, 0.1], [1, value]] for value in values],
        }
        if study.stage is not Stage.SEARCH:
            about["scores"] = self._score(study, index, draw)
        return TrialResult(fmean(values), about)

    def _score(self, study: StudyState, index: int, draw: np.random.Generator) -> dict[str, Any]:
        of_stage = {"complete"} if study.stage is Stage.FINAL else {"aggregate", "ensemble"}
        wanted = [c for c in CATEGORIES if c in of_stage]
        mean = 0.5 + self._above.get(study.method, 0.0)
        queries = {category: _of_queries(draw, mean) for category in wanted}
        path = query_scores_path(self._out_dir, study.method, study.stage, index)
        write_query_scores(path, {c: Metrics({}, scores) for c, scores in queries.items()})
        further = dict.fromkeys(self._experiment.protocol.final_metrics, 0.5)
        return {category: _means(scores) | further for category, scores in queries.items()}


def _of_queries(draw: np.random.Generator, mean: float) -> dict[str, Any]:
    values = np.clip(draw.normal(mean, 0.1, (len(METRICS), _CLASSES * _EACH)), 0, 1)
    return dict(zip(METRICS, values.astype(np.float32).astype(np.float64), strict=True))


def _means(scores: dict[str, Any]) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in scores.items()}


def experiment(*overrides: str, code: dict[str, str] | None = None) -> Experiment:
    """The tiny experiment with its fingerprints."""
    loaded = load_experiment(TINY, [*OVERRIDES, *overrides])
    return loaded.model_copy(update={"code": code or CODE})


def record(
    of: Experiment,
    folder: Path,
    until: int | None = None,
    above: Mapping[str, float] | None = None,
) -> MadeUpRunner:
    """Make a finished output folder, or one of which only so many trials are done."""
    folder.mkdir(parents=True, exist_ok=True)
    lock_experiment(of, folder)
    return work(of, folder, until, above)


def work(
    of: Experiment,
    folder: Path,
    until: int | None = None,
    above: Mapping[str, float] | None = None,
) -> MadeUpRunner:
    """Do all trials that are left in an output folder, or only so many."""
    recorded, runner = RecordedExperiment(of, folder), MadeUpRunner(of, folder, above)
    queries = {
        "labels": np.repeat(np.arange(_CLASSES), _EACH).astype(np.int32),
        "images": np.arange(_CLASSES * _EACH, dtype=np.int32),
        "class_names": np.array([f"class {n}" for n in range(_CLASSES)]),
    }
    (folder / QUERIES_FILE).write_bytes(packed(queries))
    recorded.set_attribute("parameters", {method.name: 7 for method in of.methods})
    recorded.set_attribute("inputs", {method.name: [8, 8, 1] for method in of.methods})
    loop = WorkLoop(recorded, runner)  # type: ignore[arg-type]
    try:
        if until is None:
            work_on([loop])
        else:
            for _ in range(until):
                loop.step()
    finally:
        use_sources(None)
    return runner
