"""What a run may do to an output folder: nothing while others work there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from support.prepared import prepare

from reality_check.api import run
from reality_check.config import Experiment, load_experiment
from reality_check.studies import storage as storages
from reality_check.studies.output_folder import exclusive, load_locked
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.studies.study import Study
from reality_check.utils.errors import UsageError
from reality_check.utils.processes import this_process

ELSEWHERE = {"host": "node7/boot", "pid": 5, "started": 1}


class Begun:
    """An output folder with a checkpoint of a loss of the user's own, which is then edited."""

    def __init__(self, folder: Path, tiny: Path) -> None:
        self.out = folder / "out"
        self._loss, self._tiny = folder / "losses_to_edit.py", tiny
        self._loss.write_text(
            "from pytorch_metric_learning.losses import ContrastiveLoss\n"
            "class Mine(ContrastiveLoss):\n    pass\n"
        )

    def experiment(self, *overrides: str) -> Experiment:
        method = "methods=[{name: mine, loss: losses_to_edit.Mine, samples_per_class: 2}]"
        return load_experiment(self._tiny, [method, *overrides])

    def begin(self, *overrides: str, worker: dict[str, Any] | None = None) -> Study:
        """Train one trial to its first checkpoint, and then edit the loss."""
        locked = prepare(self.experiment(*overrides), self.out).experiment
        recorded = RecordedExperiment(locked, self.out)
        stage = recorded.study(next(recorded.states().ready()))
        if worker is not None:
            stage.study.enqueue_trial({}, user_attrs={"trial_index": 0})
            stage.study.ask().set_user_attr("worker", worker)
        self.checkpoint.parent.mkdir(parents=True)
        self.checkpoint.write_bytes(b"of the running training")
        self._loss.write_text(self._loss.read_text() + "    edited = True\n")
        return stage

    @property
    def checkpoint(self) -> Path:
        return self.out / "mine" / "search" / "000" / "fold_0" / "latest.pt"

    def files(self) -> dict[str, bytes]:
        """What a run that is refused must not change."""
        names = ("experiment.yaml", self.checkpoint.relative_to(self.out))
        return {str(name): (self.out / name).read_bytes() for name in names}


@pytest.fixture
def begun(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Begun:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "losses_to_edit", raising=False)
    return Begun(tmp_path, tiny)


def test_a_run_that_is_refused_changes_nothing(begun: Begun) -> None:
    begun.begin()
    before = begun.files()
    with exclusive(begun.out), pytest.raises(UsageError, match="another reality-check run"):
        run(begun.experiment(), begun.out)
    assert begun.files() == before
    prepare(begun.experiment(), begun.out)
    assert not begun.checkpoint.exists()


def test_of_two_first_runs_the_later_one_keeps_the_studies_of_the_other(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found no experiment in the folder."""
    experiment = begun.experiment(f"storage=sqlite:///{begun.out.parent / 'shared.db'}")
    faster: list[Experiment] = []

    def be_late(out: Path) -> AbstractContextManager[None]:
        monkeypatch.setattr("reality_check.launch.open_folder.exclusive", exclusive)
        faster.append(prepare(experiment, out).experiment)
        return exclusive(out)

    monkeypatch.setattr("reality_check.launch.open_folder.exclusive", be_late)
    locked = prepare(experiment, begun.out).experiment
    assert locked.studies == faster[0].studies == load_locked(begun.out).studies


def test_a_worker_of_this_machine_with_the_earlier_code_is_no_new_beginning(begun: Begun) -> None:
    begun.begin(worker=this_process())
    before = begun.files()
    with pytest.raises(UsageError, match=f"process {this_process()['pid']} of .* still trains"):
        run(begun.experiment(), begun.out)
    assert begun.files() == before


@pytest.mark.parametrize("of_run", [True, False])
def test_a_container_that_starts_again_waits_for_no_worker_of_the_one_before(
    tiny: Path, tmp_path: Path, of_run: bool
) -> None:
    """They ended with it. Those that somebody started by hand may be elsewhere."""
    out = tmp_path / "out"
    locked = prepare(load_experiment(tiny), out).experiment
    recorded = RecordedExperiment(locked, out)
    stage = recorded.study(next(recorded.states().ready()))
    stage.study.enqueue_trial({}, user_attrs={"trial_index": 0})
    before = {**this_process(), "namespace": "pid:[1]", **({"of_run": True} if of_run else {})}
    stage.study.ask().set_user_attr("worker", before)
    seen: list[str] = []

    class Looked(Exception):
        pass

    def look(recorded: RecordedExperiment) -> None:
        seen.extend(trial.state for trial in stage.trials())
        raise Looked

    with pytest.raises(Looked):
        run(load_experiment(tiny), out, watch=look)
    assert seen[0] == ("failed" if of_run else "running")


def beat(stage: Study) -> None:
    (trial,) = stage.trials()
    stage._storage.set_trial_user_attr(trial.trial_id, "seconds", 60.0)


def complete(stage: Study) -> None:
    (trial,) = stage.trials()
    stage.study.tell(trial.number, 0.5)


@pytest.mark.parametrize(
    ("does", "refused"), [(beat, "process 5 of the machine node7"), (complete, "has changed")]
)
def test_a_worker_of_another_machine_is_looked_for(
    begun: Begun,
    monkeypatch: pytest.MonkeyPatch,
    does: Callable[[Study], None],
    refused: str,
) -> None:
    """Jobs of SLURM keep running when nobody watches them and nobody holds the folder."""
    stage = begun.begin(worker=ELSEWHERE)
    before = begun.files()
    monkeypatch.setattr("time.sleep", lambda seconds: does(stage))
    told: list[str] = []
    with pytest.raises(UsageError, match=refused):
        run(begun.experiment(), begun.out, log=told.append)
    assert begun.files() == before
    assert len(told) == 1
    assert "checking for up to 5 minutes" in told[0]


def test_after_the_heartbeat_of_a_worker_elsewhere_stopped_the_method_starts_again(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storages, "HEARTBEAT_GRACE", 1)
    stage = begun.begin(worker=ELSEWHERE)
    stage._storage.record_heartbeat(stage.trials()[0].trial_id)  # type: ignore[attr-defined]
    prepare(begun.experiment(), begun.out)
    assert not begun.checkpoint.exists()
    assert [trial.state for trial in stage.trials()] == ["failed"]
