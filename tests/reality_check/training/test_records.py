"""Curves of a fold run, and PML's own hooks as their reader."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.testers import GlobalEmbeddingSpaceTester
from pytorch_metric_learning.utils.logging_presets import HookContainer, get_record_keeper

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.training.records import FoldRecords, accuracies_group, recordable_attributes

TRIPLETS = {"miner_TripletMarginMiner": {"num_triplets": 7.0}}


def row(step: int, loss: float | None, **more: Any) -> dict[str, Any]:
    metrics = dict.fromkeys(METRICS, 0.5) | {PRIMARY: 0.1 * max(step, 0)}
    return {"epoch": step, "step": step, "phase": 1, "loss": loss, **metrics, **more}


def keep(folder: Path, history: list[dict[str, Any]], normalized: bool = True) -> FoldRecords:
    return FoldRecords(folder, history, normalized, PRIMARY)


def hooks(folder: Path, normalized: bool = True) -> tuple[HookContainer, Any]:
    """PML's reader of a folder that its own trainers could have written, and its tester."""
    keeper, _, _ = get_record_keeper(str(folder))
    tester = GlobalEmbeddingSpaceTester(normalize_embeddings=normalized)
    tester.reference_split_names = {"val": ["val"]}
    return HookContainer(keeper), tester


def accuracies(folder: Path) -> dict[str, list[Any]]:
    container, tester = hooks(folder)
    found: dict[str, list[Any]] = container.get_accuracy_history(
        tester, "val", return_all_metrics=True
    )
    return found


def test_rows_land_in_csv_and_sqlite_once_however_often_a_run_is_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    history = [row(-1, None), row(0, None), row(2, 1.5)]
    records = keep(folder, [])
    for line in history:
        records.append(line)
    records.append(row(4, 1.25))  # lost: the checkpoint of this evaluation was not written
    records.save()
    again = keep(folder, history)
    again.append(row(4, 1.0))
    again.append(row(6, 0.5))
    again.save()
    with (folder / f"{accuracies_group(True)}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(line["epoch"]) for line in rows] == [-1, 0, 2, 4, 6]
    assert [float(line[f"{PRIMARY}_level0"]) for line in rows] == pytest.approx(
        [0, 0, 0.2, 0.4, 0.6]
    )
    table = accuracies(folder)
    assert table["epoch"] == [-1, 0, 2, 4, 6]
    assert table[f"{PRIMARY}_level0"] == pytest.approx([0, 0, 0.2, 0.4, 0.6])


@pytest.mark.parametrize("normalized", [True, False])
def test_the_hooks_of_pml_read_the_histories(tmp_path: Path, normalized: bool) -> None:
    values = [row(-1, None), row(0, None), row(2, 1.5), row(4, 1.25), row(6, 1.0)]
    values[-1][PRIMARY] = 0.15
    keep(tmp_path, values, normalized).save()
    container, tester = hooks(tmp_path, normalized)
    assert container.get_best_epoch_and_accuracy(tester, "val") == (4, pytest.approx(0.4))
    history = container.get_accuracy_history(tester, "val", metrics=("precision_at_1",))
    assert history == {"epoch": [-1, 0, 2, 4, 6], "precision_at_1_level0": [0.5] * 5}
    assert container.get_loss_history(("total_loss",)) == {"total_loss": [1.5, 1.25, 1.0]}
    (of_epoch,) = container.get_accuracies_of_epoch(tester, "val", 6)
    assert of_epoch["best_epoch"] == 4
    assert of_epoch["best_accuracy"] == pytest.approx(0.4)


def test_what_a_loss_and_its_miner_list_is_recorded_as_pmls_hooks_do(tmp_path: Path) -> None:
    loss = losses.MultipleLosses([losses.ArcFaceLoss(4, 8), losses.TripletMarginLoss(margin=0.3)])
    miner = miners.TripletMarginMiner(collect_stats=True)
    embeddings, labels = torch.randn(12, 8), torch.arange(12) % 4
    loss(embeddings, labels, miner(embeddings, labels))
    found = recordable_attributes(loss, miner)
    assert found["losses__modules_0_ArcFaceLoss"]["num_classes"] == 4
    assert found["losses__modules_1_TripletMarginLoss"] == {"margin": 0.3}
    assert found["miner_TripletMarginMiner"]["num_triplets"] == miner.num_triplets > 0
    assert not any("Distance" in group for group in found), "they have collected nothing"
    theirs = get_record_keeper(str(tmp_path / "theirs"))[0]
    modules = {"loss": loss, "miner": miner}
    theirs.update_records(modules, 2, recursive_types=[torch.nn.Module, dict])
    for group, values in found.items():
        assert {name: theirs.get_record(group)[name][2] for name in values} == values
    keep(tmp_path, [row(0, None), row(2, 1.5, attributes=found)]).save()
    query = hooks(tmp_path)[0].record_keeper.query
    (line,) = query("SELECT * FROM miner_TripletMarginMiner")
    assert line["num_triplets"] == miner.num_triplets
    assert line["~iteration~"] == 2


class Odd(torch.nn.Module):
    """What record-keeper's own walk through attributes fails at, or takes long for."""

    def __init__(self) -> None:
        super().__init__()
        self.types = {"dtype": torch.float32, "again": {"self": (self,)}}
        self.values = torch.randn(3)
        self.name, self.scale = "odd", torch.tensor(2.0)
        self._record_these = ["name", "values", "scale", "types"]


def test_only_numbers_are_recorded() -> None:
    assert recordable_attributes(Odd(), lambda *_: None) == {"loss_Odd": {"scale": 2.0}}


def test_a_phase_may_have_other_attributes(tmp_path: Path) -> None:
    more: Mapping[str, Any] = {"miner_TripletMarginMiner": {"num_triplets": 3.0, "margin": 0.1}}
    rows = [row(2, 1.5, attributes=TRIPLETS), row(4, 1.0, attributes=more), row(6, 0.5)]
    keep(tmp_path, rows).save()
    found = hooks(tmp_path)[0].record_keeper.query(
        "SELECT num_triplets, margin FROM miner_TripletMarginMiner"
    )
    assert [tuple(line) for line in found] == [(7.0, None), (3.0, 0.1)]


@pytest.mark.parametrize("stays", [".nfs000000000123", "logs.db"])
def test_what_another_process_has_open_is_not_read_as_records(
    tmp_path: Path, stays: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS, such files get another name, and their folders cannot be removed."""
    folder = tmp_path / "records"
    keep(folder, [row(-1, None), row(0, None), row(2, 1.5), row(4, 1.0)]).save()
    rmtree = shutil.rmtree

    def leave_some(path: Path, ignore_errors: bool) -> None:
        old = next(folder.rglob("*.db")).read_bytes()
        rmtree(path)
        for place in (folder, folder / "inner"):
            place.mkdir()
            (place / stays).write_bytes(old)

    monkeypatch.setattr(shutil, "rmtree", leave_some)
    again = keep(folder, [row(-1, None), row(0, None)])
    again.append(row(2, 1.0))
    again.save()
    assert accuracies(folder)["epoch"] == [-1, 0, 2]


def test_records_that_cannot_be_removed_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path / "records", [row(0, None)]).save()

    def refuse(path: Path) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PermissionError, match="not yours"):
        keep(tmp_path / "records", [])


def test_a_run_without_evaluations_has_empty_records(tmp_path: Path) -> None:
    keep(tmp_path / "records", []).save()
    assert list((tmp_path / "records").rglob("*.csv")) == []
