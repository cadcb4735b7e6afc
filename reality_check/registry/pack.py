"""A pack: the content of a finished output folder, without networks and database, in one file.

Inside are ``pack.json`` (experiment, protocol hash, environment, checksums), ``records.json``
(every trial), the scores of every query, galleries, the user's own sources, and for people
and other programs ``experiment.yaml``, ``summary.json``, ``results.csv`` and ``trials.csv``.
Nothing in a pack is imported or run when it is read.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage

from reality_check._version import SCHEMA_VERSION, __version__
from reality_check.config.compose import compose
from reality_check.config.differences import value_at, without_folders
from reality_check.config.metrics import Stage
from reality_check.config.neutral_keys import is_table_neutral
from reality_check.config.packs import SCHEMA
from reality_check.config.schema import Experiment
from reality_check.config.yaml_text import dump_file
from reality_check.evaluation.query_scores import QUERIES_FILE
from reality_check.studies.growth import read_steps, write_steps
from reality_check.studies.output_folder import lock_experiment
from reality_check.studies.plain_study import plain_study, restore_study, trials_of
from reality_check.studies.plan import Step
from reality_check.studies.recorded_experiment import RecordedExperiment, read_recorded, study_name
from reality_check.utils.archive import seal, unseal
from reality_check.utils.errors import UsageError
from reality_check.utils.files import atomic_write
from reality_check.utils.text import strict_json

_RECORDS = "records.json"
#: Files for people and other programs, which are not read from packs but made again.
_PAGES = ("experiment.yaml", "summary.json", "results.csv", "trials.csv")
_FOLDER_FILES = (QUERIES_FILE, "merged_from.json", "sources/**/*")
_METHOD_FILES = ("columns.json", "*/*/queries.npz", f"{Stage.REPRODUCTIONS}/000/gallery.png")
#: Keys of an experiment that define what is compared, not how it is measured.
_OUTSIDE_PROTOCOL = {"name", "dataset", "methods", "controls", "claims", "seed", "storage", "code"}
#: Temporary folders of opened packs, from which results read scores of queries when needed.
_UNPACKED = contextlib.ExitStack()
atexit.register(_UNPACKED.close)


@dataclass(frozen=True)
class Pack:
    """A finished output folder, from a pack or from the folder itself.

    Attributes:
        label: the name of the pack in messages.
        experiment: the experiment as it was run, with its fingerprints.
        studies: the studies by name, in the format of
            :func:`reality_check.studies.plain_study.plain_study`.
        steps: the steps in which the experiment grew.
        files: file contents by path in the folder.
        checksum: the checksum of the pack; empty for a folder.
    """

    label: str
    experiment: Experiment
    studies: Mapping[str, Mapping[str, Any]]
    steps: tuple[Step, ...]
    files: Mapping[str, bytes]
    checksum: str = ""


def open_pack(path: Path) -> Pack:
    """Read a pack, or a finished output folder as if it were one.

    Raises:
        UsageError: the path is neither, the run is not finished, or the pack was changed.
    """
    return _read_folder(path) if path.is_dir() else read_pack(path)


def recorded_of(path: Path) -> RecordedExperiment:
    """Open the experiment of an output folder or a pack for reading.

    Raises:
        UsageError: the path is neither, the pack was changed, or the folder lacks its records.
    """
    return read_recorded(path) if path.is_dir() else unpacked(read_pack(path))


def read_pack(path: Path) -> Pack:
    """Read a pack and check everything in it.

    Raises:
        UsageError: the pack is damaged, was changed, or cannot be read.
    """
    archive = unseal(path, SCHEMA)
    try:
        experiment = _experiment(path, archive.about)
        steps = tuple(Step(**step) for step in archive.about["steps"])
        _check_protocol(path, archive.about, experiment)
        studies = json.loads(archive.files[_RECORDS])
        for study in studies.values():
            trials_of(study)  # raises if one is invalid
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UsageError(f"{path} has records that cannot be read ({reason}).") from None
    files = {name: text for name, text in archive.files.items() if name not in (_RECORDS, *_PAGES)}
    return Pack(str(path), experiment, studies, steps, files, archive.checksum)


def _experiment(path: Path, about: Mapping[str, Any]) -> Experiment:
    """Return the experiment as it was run, even if this version has other keys or defaults.

    Raises:
        UsageError: the experiment was run with a key that this version does not have.
    """
    # ``changed`` has the keys that differed from the defaults of the version that wrote the pack.
    changed, recorded = about["given"], about["experiment"]
    if "kind" not in recorded["protocol"]["search"]:  # by an earlier version, which needs all keys
        changed["protocol"]["search"] = recorded["protocol"]["search"]
    known = compose(changed, where=str(path)).plain()  # with the defaults of this version
    return compose(_with_values(known, recorded), where=str(path))


def _with_values(known: Any, recorded: Any) -> Any:
    """Return the keys that this version knows, with the recorded values."""
    if isinstance(known, Mapping) and isinstance(recorded, Mapping):
        return {k: _with_values(v, recorded[k]) if k in recorded else v for k, v in known.items()}
    are_lists = isinstance(known, list) and isinstance(recorded, list)
    if are_lists and len(known) == len(recorded):
        return [_with_values(*pair) for pair in zip(known, recorded, strict=True)]
    return recorded


def _check_protocol(path: Path, about: Mapping[str, Any], experiment: Experiment) -> None:
    """Check the recorded protocol and its hash; later versions may have other keys or defaults."""
    recorded, recorded_hash = about["protocol"], about["protocol_hash"]
    plain = experiment.plain()
    changed = [
        key
        for key, value in recorded.items()
        # A key that this version does not have is looked up as it was recorded.
        if value_at(plain, key, value_at(about["experiment"], key)) != value
    ]
    actual_hash = _hash(recorded)
    if changed or recorded_hash != actual_hash:
        problem = f"in which {changed[0]} is another" if changed else f"whose hash is {actual_hash}"
        raise UsageError(
            f"{path} says that its protocol hash is {recorded_hash}, but has a protocol {problem}; "
            "it was changed: fetch it again, or pack its output folder again."
        )


def _read_folder(path: Path) -> Pack:
    """Return the content of a finished output folder."""
    recorded = read_recorded(path)
    if not recorded.is_complete():
        raise UsageError(
            f"{path} is not finished, so it is no comparison yet; run it to its end first "
            f"(reality-check status {path} says what is left)."
        )
    studies = {
        study.planned.key.name: plain_study(recorded.study(study).study)
        for study in recorded.states().ready()
    }
    patterns = [f"{m.name}/{part}" for m in recorded.experiment.methods for part in _METHOD_FILES]
    files = {
        file.relative_to(path).as_posix(): file.read_bytes()
        for pattern in (*_FOLDER_FILES, *patterns)
        for file in path.glob(pattern)
        if file.is_file() and file.suffix != ".pyc"
    }
    steps = tuple(read_steps(path))
    return Pack(str(path), recorded.experiment, studies, steps, files)


def without_queries(pack: Pack) -> Pack:
    """Return a copy of the pack without the scores of every query."""
    files = {k: v for k, v in pack.files.items() if not k.endswith("/queries.npz")}
    return dataclasses.replace(pack, files=files)


def pack_bytes(pack: Pack, pages: Mapping[str, str]) -> bytes:
    """Return a pack as the content of a file; the same folder gives the same bytes.

    Args:
        pack: The pack of an output folder, as :func:`public` returns it.
        pages: Contents by name of further files, for people and other programs.
    """
    experiment = pack.experiment
    origins = [study["attributes"].get("about", {}) for study in pack.studies.values()]
    environments = [
        f"{origin['versions']}; {origin['machine']}" for origin in origins if "versions" in origin
    ]
    about = {
        "schema": SCHEMA,
        "version": SCHEMA_VERSION,
        "written_by": f"pml-extensions {__version__}",
        "protocol_hash": protocol_hash(experiment),
        "protocol": protocol_settings(experiment),
        "data": experiment.code["dataset"],
        "environment": list(dict.fromkeys(environments)),  # software and machines
        "experiment": experiment.plain(),
        "given": not_default(experiment),
        "steps": [dataclasses.asdict(step) for step in pack.steps],
    }
    records = strict_json(pack.studies, separators=(",", ":"), sort_keys=True)
    texts = {**pages, _RECORDS: records, "experiment.yaml": dump_file(experiment.plain())}
    return seal(about, {**pack.files, **{name: text.encode() for name, text in texts.items()}})


def protocol_hash(experiment: Experiment) -> str:
    """Return a hash that experiments share if they have the same protocol and network."""
    return _hash(protocol_settings(experiment))


def protocol_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that the protocol hash covers, by dotted key.

    Defaults are left out, so that a key added by a later version changes no hash.
    """
    changed = without_folders(not_default(experiment)).items()
    return dict(_table_settings({k: v for k, v in changed if k not in _OUTSIDE_PROTOCOL}, ""))


def not_default(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment as plain data, without keys that have their default value."""
    return experiment.plain(exclude_defaults=True)


def _hash(settings: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that identify the settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _table_settings(plain: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield the settings that decide whether results may be in one table, by dotted key."""
    for key, value in plain.items():
        if is_table_neutral(f"{path}{key}"):
            continue
        if isinstance(value, Mapping):
            yield from _table_settings(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def public(pack: Pack) -> Pack:
    """Return a copy of the pack without folders and settings of the machine in its experiment."""
    plain = {
        **without_folders(pack.experiment.plain()),
        **dict.fromkeys(("storage", "studies", "command")),
        "slurm": {},
        "device": "auto",
    }
    return dataclasses.replace(pack, experiment=compose(plain, where=pack.label))


def restore(pack: Pack, out_dir: Path, experiment: Experiment, storage: BaseStorage) -> None:
    """Write the files and studies of a pack into an output folder; existing ones are kept."""
    for name, content in pack.files.items():
        if not (out_dir / name).exists():
            atomic_write(out_dir / name, content, durable=False)
    for name, study in pack.studies.items():
        restore_study(storage, study_name(experiment, name), study)


def write_folder(pack: Pack, out_dir: Path) -> None:
    """Write a pack as an output folder; ``experiment.yaml`` comes last and makes it valid."""
    out_dir.mkdir(parents=True, exist_ok=True)
    if pack.steps:
        write_steps(list(pack.steps), out_dir)
    restore(pack, out_dir, pack.experiment, RecordedExperiment(pack.experiment, out_dir).storage)
    lock_experiment(pack.experiment, out_dir)


def unpacked(pack: Pack) -> RecordedExperiment:
    """Open the experiment of a pack in a temporary folder; its studies are in memory."""
    folder = Path(_UNPACKED.enter_context(tempfile.TemporaryDirectory(prefix="reality_check_")))
    if pack.steps:
        write_steps(list(pack.steps), folder)
    # No file of records exists, and none is created.
    recorded = RecordedExperiment(pack.experiment, folder, only_reads=True)
    restore(pack, folder, pack.experiment, recorded.storage)
    return recorded
