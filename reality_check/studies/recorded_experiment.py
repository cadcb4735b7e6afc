"""An experiment in its output folder: its plan, and the records of its trials in the storage."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, InMemoryStorage
from sqlalchemy import URL

from reality_check.config.schema import Experiment
from reality_check.config.search import INDEPENDENT
from reality_check.config.values import Searched
from reality_check.studies.folder_server import SERVER, server_url
from reality_check.studies.growth import read_steps
from reality_check.studies.output_folder import load_locked
from reality_check.studies.patient_storage import PatientStorage
from reality_check.studies.plan import (
    BASELINES,
    States,
    StudyKey,
    StudyRecord,
    StudyState,
    make_plan,
)
from reality_check.studies.storage import holds_study, open_storage, storage_file
from reality_check.studies.study import Study
from reality_check.studies.trial import read_trial
from reality_check.utils.environment import split_versions
from reality_check.utils.errors import UsageError
from reality_check.utils.own_names import own_path
from reality_check.utils.passwords import without_password


class RecordedExperiment:
    """An experiment with its output folder and its storage.

    Args:
        experiment: the experiment.
        out_dir: its output folder.
        wait_for_storage: whether to wait for a database server that does not answer.
        only_reads: whether the records are only read, so that a missing file is not created.

    Attributes:
        plan: the studies of the experiment, in the order in which they are worked on.
        storage: the storage.
    """

    def __init__(
        self,
        experiment: Experiment,
        out_dir: Path,
        wait_for_storage: bool = False,
        only_reads: bool = False,
    ) -> None:
        self.experiment = experiment
        self.out_dir = out_dir
        self.plan = make_plan(experiment, read_steps(out_dir))
        self.storage: PatientStorage | InMemoryStorage
        url = storage_url(experiment, out_dir)
        file = storage_file(url)
        if not only_reads or file is None or file.exists():
            self.storage = open_storage(url, wait_for_storage)
        elif experiment.storage is None:
            self.storage = InMemoryStorage()  # opening the file would create it
        else:
            raise UsageError(
                f"the storage of {out_dir}, {url}, is not there: {file.absolute()} does not exist. "
                "Bring that file back; if it was named by a path from the folder in which the run "
                "began, write this command there."
            )
        self._ids: dict[str, int] = {}  # of studies in the storage by their names
        self._complete: dict[StudyKey, StudyState] = {}
        self._studies: dict[StudyKey, Study] = {}

    def states(self) -> States:
        """Return what is known of each study now; complete studies are read only once."""
        return States(self.plan, self._read, self._complete)

    def is_complete(self) -> bool:
        """Whether every study is complete."""
        return self.states().is_complete()

    def study(self, state: StudyState) -> Study:
        """Return the study in the storage, which is begun if it was not.

        Beginning a search needs torch, the user's loss, and write access to the storage.
        """
        key = state.planned.key
        if key not in self._studies:
            name = study_name(self.experiment, key.name)
            search_space = functools.partial(self._search_space, key.method)
            assert isinstance(self.storage, PatientStorage)  # a missing file has no studies
            self._studies[key] = Study(self.storage, name, state, search_space)
        return self._studies[key]

    def begun_studies(self) -> Iterator[Study]:
        """Yield the studies that were begun and whose trials can start."""
        yield from map(self.study, self.states().begun().values())

    def clear_failures(self) -> None:
        """Forget failures and lost workers, since the user runs the command again."""
        for study in self.begun_studies():
            study.clear_failures()

    def release_lost(self) -> None:
        """Release the trials of lost workers."""
        for study in self.begun_studies():
            study.release_lost()

    def release_all(self) -> None:
        """Release the trials of all workers of runs; see :meth:`Study.release_all`."""
        for study in self.begun_studies():
            study.release_all()

    def tidy(self) -> None:
        """End the attempts at trials of complete stages that are still running or waiting."""
        for study in self.begun_studies():
            study.tidy()

    def set_attribute(self, key: str, value: Any) -> None:
        """Store plain data with the experiment."""
        state = self.states().get(BASELINES)
        assert state is not None  # baselines come after no other study
        self.study(state).set_attribute(key, value)

    def attribute(self, key: str) -> Any:
        """Return data stored by :meth:`set_attribute`, or ``None`` if there are none."""
        record = self._read(BASELINES)
        return None if record is None else record.attributes.get(key)

    def _read(self, key: StudyKey) -> StudyRecord | None:
        """Return the stored records of a study, or ``None`` if it was not begun."""
        name, storage = study_name(self.experiment, key.name), self.storage
        if name not in self._ids:
            try:
                self._ids[name] = storage.get_study_id_from_name(name)
            except KeyError:
                return None
        study_id = self._ids[name]
        trials = storage.get_all_trials(study_id, deepcopy=False)
        return StudyRecord(tuple(map(read_trial, trials)), storage.get_study_user_attrs(study_id))

    def _search_space(self, name: str) -> Mapping[str, Searched]:
        # Imported here, since torch and the user's loss are needed only if a search begins.
        from reality_check.training.methods import search_space

        experiment, method = self.experiment, self.experiment.method(name)
        return search_space(method, experiment.protocol, experiment.model_of(method))


def check_version(state: StudyState) -> None:
    """Make sure that a search with a model uses the version of Optuna with which it began.

    Raises:
        UsageError: another version is installed, which would draw different trials.
    """
    about = state.about
    if not about or about["sampler"] in INDEPENDENT:
        return
    version = split_versions(about["versions"]).get("optuna")
    if version != optuna.__version__:
        raise UsageError(
            f"{state.planned.key.name} began with Optuna {version}, but {optuna.__version__} is "
            f"installed, whose sampler {about['sampler']} draws other trials from the same seed: "
            f"write pip install optuna=={version}, or start a new run with another --out."
        )


def read_experiment(out_dir: Path) -> RecordedExperiment:
    """Open the experiment of an output folder for reading, even if it has no records yet."""
    return RecordedExperiment(load_locked(out_dir), out_dir, only_reads=True)


def read_recorded(out_dir: Path) -> RecordedExperiment:
    """Open the experiment of an output folder that must have records.

    Raises:
        UsageError: this is not an output folder of reality-check, or it has no records.
    """
    recorded = read_experiment(out_dir)
    if isinstance(recorded.storage, InMemoryStorage):
        raise UsageError(
            f"{out_dir} has no studies.db, the record of all trainings, so there are no results to "
            "load; name the folder that the run wrote."
        )
    return recorded


def study_name(experiment: Experiment, name: str) -> str:
    """Return the name of a study in the storage, which several experiments can share."""
    return name if experiment.studies is None else f"{experiment.studies}/{name}"


def check_studies(experiment: Experiment, storage: BaseStorage) -> None:
    """Make sure that a storage whose URL has changed is the storage of this experiment.

    Raises:
        UsageError: it lacks the study of the baselines, which every experiment has.
    """
    if not holds_study(storage, study_name(experiment, BASELINES.name)):
        raise UsageError(
            f"the storage {without_password(experiment.storage or '')} holds no studies of this "
            "experiment; name the one that it was started with."
        )


def storage_url(experiment: Experiment, out_dir: Path) -> str | URL:
    """Return the experiment's storage URL, or that of a file or server in the output folder."""
    if experiment.storage == SERVER:
        return server_url(out_dir)
    file = str(own_path(out_dir, "studies.db").resolve())
    return experiment.storage or URL.create("sqlite", database=file)
