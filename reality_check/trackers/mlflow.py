"""MLflow: a run for each trial, in an experiment of the same name."""

from __future__ import annotations

import time
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from reality_check.trackers.tracked_trial import TrackedTrial

#: Maximum number of metrics in one request.
_METRICS_PER_REQUEST = 1000


class MLflowTracker:
    """Sends trials to the server or folder that ``MLFLOW_TRACKING_URI`` names.

    Curves are metrics like ``fold 1/validation MAP at R`` by epoch: MLflow's names have no ``@``.
    """

    def __init__(self, experiment: str, out_dir: Path) -> None:
        self._client = MlflowClient()
        existing = self._client.get_experiment_by_name(experiment)
        if existing is None:
            self._experiment = self._client.create_experiment(experiment)
        else:
            self._experiment = existing.experiment_id

    def log(self, trial: TrackedTrial) -> None:
        """Create a run for the trial and end it; an earlier run of the trial is deleted."""
        run_name = f"{trial.method}, {trial.name}"
        query = f"attributes.run_name = '{run_name}'"
        for earlier in self._client.search_runs([self._experiment], query):
            self._client.delete_run(earlier.info.run_id)
        now = int(1000 * time.time())  # in milliseconds
        run = self._client.create_run(
            self._experiment, start_time=now - int(1000 * trial.seconds), run_name=run_name
        )
        run_id = run.info.run_id
        # The arguments of Metric are name, value, time and step.
        metrics = [Metric(_valid_name(name), value, now, 0) for name, value in trial.values.items()]
        for fold, curve in enumerate(trial.curves, 1):
            for row in curve:
                for name, value in row.items():
                    group = f"fold {fold}/" if name == "loss" else f"fold {fold}/validation "
                    if name != "epoch":
                        epoch = int(row["epoch"])
                        metrics.append(Metric(_valid_name(group + name), value, now, epoch))
        params = [Param(name, str(value)) for name, value in trial.params.items()]
        tags = {"method": trial.method, "stage": trial.stage, "diverged": trial.diverged}
        run_tags = [RunTag(name, text) for name, text in tags.items() if text is not None]
        self._client.log_batch(run_id, params=params, tags=run_tags)
        for start in range(0, len(metrics), _METRICS_PER_REQUEST):
            self._client.log_batch(run_id, metrics=metrics[start : start + _METRICS_PER_REQUEST])
        self._client.set_terminated(run_id, "FAILED" if trial.diverged else "FINISHED", now)

    def close(self) -> None:
        """Do nothing, since all trials have been sent."""


def _valid_name(name: str) -> str:
    """Return a name without the characters that MLflow refuses."""
    return name.replace("@", " at ").replace("(", "").replace(")", "")
