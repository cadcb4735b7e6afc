"""An experiment that is worked on in the test's own process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reality_check.config import Experiment
from reality_check.config.metrics import Stage
from reality_check.config.source_code import use_sources
from reality_check.data import ImageSet
from reality_check.launch.trial_runner import TrialRunner
from reality_check.launch.work_loop import WorkLoop, work_on
from reality_check.studies.plan import StudyKey, StudyState
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.training.prepared_experiment import PreparedExperiment


class WorkedExperiment(RecordedExperiment):
    """An experiment with a worker of its own: ``work()`` does all that is left.

    Args:
        experiment: validated.
        out_dir: its output folder.
        images: its data set, if it is not read.
        runner_arguments: see :class:`TrialRunner`.
    """

    def __init__(
        self,
        experiment: Experiment,
        out_dir: Path,
        images: ImageSet | None = None,
        **runner_arguments: Any,
    ) -> None:
        super().__init__(experiment, out_dir)
        self.prepared = PreparedExperiment(experiment, images)
        self.runner = TrialRunner(self.prepared, out_dir, **runner_arguments)

    def work(self) -> None:
        try:
            work_on([WorkLoop(self, self.runner)])
        finally:
            use_sources(None)

    def state(self, method: str, stage: Stage, search: int = 0) -> StudyState:
        state = self.states().get(StudyKey(method, stage, search))
        assert state is not None, "its trials cannot start"
        return state
