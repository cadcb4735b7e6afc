"""The curves of a training, as CSV and SQLite in the layout of PML's hooks.

The groups are those of ``pytorch_metric_learning.utils.logging_presets``, so that a
``HookContainer`` can read them: accuracies of the validation classes, the loss, and the attributes
that the loss and the miner list in ``_record_these``.

The history lives in the checkpoint; these files are its readable copy. When a fold run starts or
resumes, the files are written again from that history, so that nothing is recorded twice.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.miners import BaseMiner
from pytorch_metric_learning.utils.common_functions import (
    is_list_or_tuple,
    list_of_recordable_attributes_list_names,
)
from record_keeper import RecordKeeper, RecordWriter
from torch import nn

#: Minimum seconds between two writes of the files.
_SAVE_SECONDS = 5.0
#: The kinds of modules inside a loss or a miner whose attributes are recorded.
_RECORDED_TYPES = (BaseMetricLossFunction, BaseMiner)
#: The group of the losses, as PML's trainers name it.
LOSSES = "loss_histories"


def accuracies_group(normalized: bool, split: str = "val") -> str:
    """Return the name of the group in which PML's tester records the accuracies of a split."""
    suffix = "_normalized" if normalized else ""
    return f"accuracies{suffix}_GlobalEmbeddingSpaceTester_level_0_{split.upper()}_vs_self"


class FoldRecords:
    """Writes the curves of one fold run.

    Args:
        folder: the folder of the records; its files are deleted first.
        history: the rows recorded so far (see :meth:`append`).
        normalized: whether embeddings are normalised before they are compared.
        primary: the metric that chooses the best epoch.
        split: the name of the split that the metrics are computed on.
        sign: -1 if the lowest value of ``primary`` is the best, otherwise 1.
    """

    def __init__(
        self,
        folder: Path,
        history: Sequence[Mapping[str, Any]],
        normalized: bool,
        primary: str,
        split: str = "val",
        sign: int = 1,
    ) -> None:
        _empty_folder(folder)
        self._keeper = RecordKeeper(record_writer=RecordWriter(str(folder)))
        self._group = accuracies_group(normalized, split)
        self._primary, self._sign = primary, sign
        self._best = (-1, -math.inf)  # step and value
        for row in history:
            self._add(row)
        self._unsaved = bool(history)
        self.save()

    def append(self, row: Mapping[str, Any]) -> None:
        """Record one evaluation, which is a row of ``FoldProgress.history``.

        The files are written some seconds later: a write takes as long as evaluating a head.
        """
        self._add(row)
        self._unsaved = True
        if time.monotonic() - self._saved_at >= _SAVE_SECONDS:
            self.save()

    def discard(self) -> None:
        """Drop the rows that have not been written."""
        self._unsaved = False

    def save(self) -> None:
        """Write the rows that have not been written."""
        if self._unsaved:
            self._keeper.save_records()
        self._unsaved, self._saved_at = False, time.monotonic()

    def _add(self, row: Mapping[str, Any]) -> None:
        """Record a row of the history, with the best epoch so far."""
        step = row["step"]
        metrics = {
            name: value
            for name, value in row.items()
            if name not in ("epoch", "step", "phase", "loss", "attributes")
        }
        value = metrics[self._primary]
        is_better = self._sign * value > self._sign * self._best[1]
        if step < 0 or self._best[0] < 0 or is_better:  # the trunk alone (-1) is always replaced
            self._best = step, value
        accuracies = {f"{name}_level0": value for name, value in metrics.items()}
        best = {"best_epoch": self._best[0], "best_accuracy": self._best[1]}
        groups = {self._group: {"epoch": step, "phase": row["phase"], **accuracies, **best}}
        if row["loss"] is not None:
            losses = {"metric_loss": row["loss"], "total_loss": row["loss"]}
            groups |= {LOSSES: losses, **row.get("attributes", {})}
        self._keeper.update_records(groups, step)


def recordable_attributes(loss: nn.Module, miner: Any) -> dict[str, dict[str, float]]:
    """Return what a loss, a miner and their inner losses list in PML's ``_record_these``.

    Distances, reducers and regularizers are included only if they collect statistics; otherwise
    their attributes are constants.

    Returns:
        Numbers by group and name, such as ``num_triplets`` in ``miner_TripletMarginMiner``.
        Statistics that cost time (``_record_these_stats``) are included if PML's ``COLLECT_STATS``
        is on.
    """
    numbers, seen = _NumberWriter(), set()
    names = list_of_recordable_attributes_list_names()
    keeper = RecordKeeper(record_writer=numbers, attributes_to_search_for=names)

    def visit(module: nn.Module, name: str, parent: str = "") -> None:
        """Record the attributes of a module and of the modules in it."""
        seen.add(module)
        if (
            not parent  # the loss or the miner itself
            or isinstance(module, _RECORDED_TYPES)
            or getattr(module, "collect_stats", False)
        ):
            keeper.update_records({name: module}, 0, parent_name=parent)  # in the iteration 0
        # PML's hooks give this name to the groups of inner modules.
        inner_parent = f"{keeper.get_record_name(name, module)}__modules"
        for inner_name, child in module.named_children():
            if child not in seen:
                visit(child, inner_name, inner_parent)

    visit(loss, "loss")
    if isinstance(miner, nn.Module):
        visit(miner, "miner")
    # The record keeper replaces long names of groups by hashes.
    return {keeper.hash_map.get(group, group): values for group, values in numbers.groups.items()}


class _NumberWriter:
    """A writer for record-keeper that keeps numbers, and ignores vectors and texts."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, float]] = {}

    def append(self, group: str, name: str, value: Any, _: int) -> None:
        size = math.prod(getattr(value, "shape", ()))  # 1 for a plain number too
        if not isinstance(value, str) and not is_list_or_tuple(value) and size == 1:
            self.groups.setdefault(group, {})[name] = float(value)


def _empty_folder(folder: Path) -> None:
    """Empty the folder.

    On NFS, a deleted file that another process (such as a suspended worker) has open remains as
    ``.nfs...``, which no reader of records opens.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith(".nfs"):
            path.unlink()  # raises the reason why it could not be deleted
