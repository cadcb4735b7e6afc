"""The output folder of a suite: ``suite.yaml``, and an output folder for each data set."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from reality_check.config.suite import Suite
from reality_check.config.yaml_text import dump_file, read_yaml
from reality_check.studies.output_folder import check_empty
from reality_check.utils.errors import UsageError
from reality_check.utils.files import atomic_write
from reality_check.utils.own_names import own_path


def is_suite(out_dir: Path) -> bool:
    """Return whether a folder is the output folder of a suite."""
    return own_path(out_dir, "suite.yaml").is_file()


def suite_name(out_dir: Path) -> str:
    """Return the name of the suite of an output folder."""
    return str(read_yaml(own_path(out_dir, "suite.yaml"))["name"])


def member_folders(out_dir: Path) -> list[Path]:
    """Return the folders of a suite's experiments; of one experiment, its folder alone."""
    if not is_suite(out_dir):
        return [out_dir]
    names: Sequence[str] = read_yaml(own_path(out_dir, "suite.yaml"))["suite"]
    return [out_dir / name for name in names]


@contextlib.contextmanager
def lock_suite(suite: Suite, out_dir: Path) -> Iterator[None]:
    """Write the names of a suite's data sets into its output folder; more may be added later.

    Those that are added are written when the context ends without a refusal.

    Raises:
        UsageError: the folder holds something else, or a suite with other data sets.
    """
    if (out_dir / "experiment.yaml").exists():
        raise UsageError(f"{out_dir} holds one experiment, not a suite; name a new --out.")
    file, names, is_new = (
        own_path(out_dir, "suite.yaml"),
        list(suite.members),
        not is_suite(out_dir),
    )
    if is_new:
        check_empty(out_dir)
    else:
        begun = [f for f in member_folders(out_dir) if (f / "experiment.yaml").exists()]
        there = [folder.name for folder in begun]
        if left_out := [name for name in there if name not in names]:
            raise UsageError(
                f"{out_dir} holds a suite with {left_out[0]} too, which cannot be left out of what "
                "its verdict is about: add it, or name a new --out."
            )
        yield
    text = dump_file({"name": suite.name, "suite": names})
    text = f"# Written by reality-check: the data sets of the suite, a folder each.\n{text}"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        atomic_write(file, text)
    if is_new:
        yield
