"""An output folder: its paths, its experiment, and the lock for runs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from reality_check.config.compose import compose
from reality_check.config.differences import differing_keys, value_at
from reality_check.config.metrics import Stage
from reality_check.config.neutral_keys import is_result_neutral
from reality_check.config.schema import Experiment
from reality_check.config.yaml_text import dump_file, read_yaml
from reality_check.studies.growth import without_growth
from reality_check.studies.plan import stage_name
from reality_check.studies.storage import same_database
from reality_check.utils.errors import UsageError
from reality_check.utils.files import atomic_write
from reality_check.utils.locks import try_lock
from reality_check.utils.own_names import own_path

#: Names of fingerprints that do not belong to a class of the user.
_NOT_CLASSES = {"dataset", "data set from", "pretrained weights"}
_NOT_SET = object()
#: Pattern of the fingerprints of the user's code and of plugins until 2026-11 (of syntax trees).
_EARLIER_FINGERPRINT = re.compile(r"^[0-9a-f]{64}$|, sha256:")
_REMEDY = (
    "Choose another folder with --out (reality-check report A B --out C shows several as one), or "
    "give the values that the folder was made with; only trials, searches, reproductions, final "
    "metrics and methods may be more than there."
)


def trial_folder(
    out_dir: Path, method: str, stage: Stage, trial_index: int, search: int = 0
) -> Path:
    """Return the folder of a trial, which contains its fold runs; a race has that of its search."""
    if stage is Stage.RACE:
        stage, search = Stage.SEARCH, 0
    return out_dir / method / stage_name(stage, search) / f"{trial_index:03d}"


def fold_folder(
    out_dir: Path, method: str, stage: Stage, trial_index: int, fold: int, search: int = 0
) -> Path:
    """Return the folder of a fold run."""
    return trial_folder(out_dir, method, stage, trial_index, search) / f"fold_{fold}"


def query_scores_path(out_dir: Path, method: str, stage: Stage, trial_index: int) -> Path:
    """Return the file with the scores of every query of a reproduction."""
    return trial_folder(out_dir, method, stage, trial_index) / "queries.npz"


def gallery_path(out_dir: Path, method: str) -> Path:
    """Return the file of a method's gallery, which the first reproduction draws."""
    return trial_folder(out_dir, method, Stage.REPRODUCTIONS, 0) / "gallery.png"


def remove_checkpoints(folder: Path) -> None:
    """Delete all checkpoints below a folder, including incomplete ones, but not the records."""
    for pattern in ("*.pt", ".*.tmp"):
        for path in folder.rglob(pattern):
            path.unlink(missing_ok=True)


def changed_code(experiment: Experiment, out_dir: Path) -> list[str]:
    """Return the user's classes whose code differs from that of the output folder."""
    file = out_dir / "experiment.yaml"
    if not file.exists():
        return []
    recorded = _read_locked(file)["code"]
    return [
        name
        for name, fingerprint in experiment.code.items()
        if name not in _NOT_CLASSES and recorded.get(name) not in (None, fingerprint)
    ]


def check_same_experiment(
    experiment: Experiment, out_dir: Path, may_change: Collection[str] = ()
) -> bool:
    """Make sure that an output folder is new or belongs to this experiment.

    Args:
        experiment: the experiment to run.
        out_dir: the output folder.
        may_change: names of classes whose code may differ.

    Returns:
        Whether the folder belongs to this experiment already; ``False`` if it is new.

    Raises:
        UsageError: the folder belongs to another experiment (the message names the keys that
            differ), or contains other files.
    """
    file = out_dir / "experiment.yaml"
    if not file.exists():
        check_empty(out_dir)
        return False
    # Loaded through the schema, so that keys newer than the folder get their defaults.
    recorded, requested = load_locked(out_dir).plain(), experiment.plain()
    ignored = {f"code.{name}" for name in may_change}
    if same_database(recorded["storage"], requested["storage"]):
        ignored.add("storage")  # another user or host, such as a tunnel
    requested, _ = without_growth(recorded, requested)
    differing = differing_keys(recorded, requested)
    keys = [key for key in differing if key not in ignored and not is_result_neutral(key)]
    keys.sort(key=lambda key: key.startswith("code."))  # changed code comes last
    if keys:
        shown = describe_differences(keys, recorded, requested)
        raise UsageError(f"{out_dir} holds another experiment: {shown}. {_REMEDY}")
    return True


def growth(experiment: Experiment, out_dir: Path) -> dict[str, tuple[Any, Any]]:
    """Return the old and the new value of each key in which the experiment has grown, by key."""
    if not (out_dir / "experiment.yaml").exists():
        return {}
    return without_growth(load_locked(out_dir).plain(), experiment.plain())[1]


def lock_experiment(experiment: Experiment, out_dir: Path) -> None:
    """Write the resolved experiment into its output folder, unless it is already there."""
    file = own_path(out_dir, "experiment.yaml")
    text = dump_file(experiment.plain())
    text = f"# Written by reality-check: the experiment as it is run.\n{text}"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        atomic_write(file, text)


def load_locked(out_dir: Path) -> Experiment:
    """Load the experiment of an output folder.

    Raises:
        UsageError: this is not an output folder of reality-check.
    """
    file = check_folder(out_dir) / "experiment.yaml"
    return compose(_read_locked(file), where=str(file))


def check_folder(out_dir: Path) -> Path:
    """Return the path of an output folder, after checking that it is one.

    Raises:
        UsageError: this is not an output folder of reality-check.
    """
    if (out_dir / "experiment.yaml").exists():
        return out_dir
    problem = "it has no experiment.yaml" if out_dir.is_dir() else "there is no such folder"
    if out_dir.is_file():
        problem = "it is a file"
        remedy = "Packs are for report, verdicts, merge, leaderboard and methods: [{from: PACK}]"
    elif any(out_dir.glob("*/experiment.yaml")):
        remedy = f"Name what is in it: {out_dir / '*'}"
    elif any(out_dir.glob("*.pack")):
        remedy = f"Name what is in it: {out_dir / '*.pack'}"
    else:
        remedy = "Start one with: reality-check run EXPERIMENT --out FOLDER"
    raise UsageError(f"{out_dir} is not an output folder of reality-check: {problem}. {remedy}")


def _read_locked(file: Path) -> dict[str, Any]:
    """Return the content of ``experiment.yaml``, after checking that a run wrote it."""
    data = read_yaml(file)
    if not data.get("code"):
        raise UsageError(
            f"{file} was not written by a run, so {file.parent.resolve()} is not an output folder; "
            "those are in runs/ unless named with --out."
        )
    return data


@contextlib.contextmanager
def exclusive(out_dir: Path) -> Iterator[None]:
    """Lock the output folder, so that one ``run`` works on it at a time.

    Raises:
        UsageError: another run has locked the folder.
    """
    with try_lock(out_dir / ".lock") as holder:
        if holder is not None:
            raise UsageError(
                f"another reality-check run ({holder}) works on {out_dir}; wait for it, or end it "
                "first."
            )
        yield


def check_empty(out_dir: Path) -> None:
    """Make sure that a new output folder contains no files, except hidden ones."""
    if out_dir.exists() and not out_dir.is_dir():
        raise UsageError(f"{out_dir} is a file; name a folder with --out.")
    if out_dir.is_dir():
        # The storage is that of a server, which starts before the first run.
        names = {path.name for path in out_dir.iterdir()} - {"storage"}
        others = sorted(name for name in names if not name.startswith("."))
        if others:
            raise UsageError(
                f"{out_dir} holds other files ({', '.join(others[:3])}, ...) and no "
                "experiment.yaml; name a new or empty folder with --out."
            )


def describe_differences(
    keys: Sequence[str], first: Any, second: Any, labels: tuple[str, str] = ("there", "here")
) -> str:
    """Describe the values of keys in which two experiments differ, for at most five keys."""
    shown = "; ".join(_describe_difference(key, first, second, labels) for key in keys[:5])
    return shown + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")


def _describe_difference(key: str, first: Any, second: Any, labels: tuple[str, str]) -> str:
    """Return the values of a key in two experiments in words, each value with its label."""
    if key == "code.dataset":
        return "the images are not the same"
    if key == "code.pretrained weights":
        return "the pretrained weights are not the same"
    if key.startswith("code."):
        name = key.removeprefix("code.")
        if _EARLIER_FINGERPRINT.search(first["code"].get(name, "")):
            return (
                f"an earlier version recorded the code of {name} in another way, so that it cannot "
                "be told whether it is the same"
            )
        return f"the code of {name} has changed"

    values = []
    for experiment, label in zip((first, second), labels, strict=True):
        value = value_at(experiment, key, _NOT_SET)
        if key == "methods":
            value = [method.get("name") for method in value]
        if key == "storage" and isinstance(value, str):
            value = value.partition("://")[0] + "://..."
        values.append(f"{'not set' if value is _NOT_SET else repr(value)} {label}")
    return f"{key} is {' and '.join(values)}"
