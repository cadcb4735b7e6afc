"""Partly trained networks from YAML to report: an adapter, and a trunk's rest on stored outputs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support.blank_figures import blank
from support.in_process import run_command

import reality_check as rc
from reality_check.config.model import Model
from reality_check.data import load_dataset
from reality_check.models import build_trunk
from reality_check.utils import checkpoints

TRUNK = "timm:vit_tiny_patch16_224"
ARGUMENTS = {"img_size": 32, "patch_size": 16, "embed_dim": 8, "depth": 3, "num_heads": 1}
YAML = """
name: NAME
dataset: DATASET
model: {name: x, MODEL}
protocol:
  base: quick
  training:
    {max_epochs: 1, evaluate_every: 1, iterations_per_epoch: 1, embedding_size: 4,
     batch_size: {choices: [4, 8]}}
  search: {trials: 4, budget: 1, race: []}
methods: [{base: quick/normalized_softmax, samples_per_class: {choices: [1, 2]}}]
"""
#: The data set and the model of each run.
RUNS = {
    "lora": (
        "{reader: glyphs, name: few, classes: 40, images_per_class: 4}",
        f"trunk: '{TRUNK}', arguments: {ARGUMENTS}, weights: vit.pth, "
        "adapter: {rank: {choices: [2, 3]}}",
    ),
    "rest": ("outputs", "trunk: {from: outputs}"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs ``lora`` and ``rest``, which start from the weights ``vit.pth``."""
    pytest.importorskip("peft")
    pytest.importorskip("timm")
    folder = tmp_path_factory.mktemp("partly")
    torch.manual_seed(0)
    trunk = Model.model_validate({"name": "x", "trunk": TRUNK, "arguments": ARGUMENTS})
    torch.save(build_trunk(trunk, (32, 32, 3)).state_dict(), folder / "vit.pth")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reality_check.report.figures.plotting.render", blank)
        command(folder, "embed", "glyphs", "dataset.classes=40", "dataset.images_per_class=4",
                "--trunk", TRUNK, "--weights", "vit.pth", f"model.arguments={ARGUMENTS}",
                "--crop-size", "32", "--until", "blocks.1", "--out", "outputs")  # fmt: skip
        for name, (dataset, model) in RUNS.items():
            text = YAML.replace("NAME", name).replace("DATASET", dataset).replace("MODEL", model)
            (folder / f"{name}.yaml").write_text(text)
            command(folder, "run", f"{name}.yaml")
    return folder


def command(folder: Path, *words: str) -> None:
    done = run_command(folder, *words)
    assert done.returncode == 0, done.stderr


def weights(folder: Path, name: str) -> list[dict[str, Any]]:
    files = sorted((folder / "runs" / name).glob("normalized_softmax/search/*/fold_0/model.pt"))
    assert files
    return [checkpoints.load(file) or {} for file in files]


def test_sampled_values_are_those_of_the_networks(folder: Path) -> None:
    for name in ("lora", "rest"):
        trials = rc.load_results(folder / "runs" / name).trials()
        found = {(t["params.training.batch_size"], t["params.samples_per_class"]) for t in trials}
        assert len(found) > 1
    ranks = {
        state["params"]["model.adapter.rank"]: state[
            "trunk.blocks.0.attn.qkv.lora_A.default.weight"
        ]
        for state in weights(folder, "lora")
    }
    assert len(ranks) == 2
    assert all(len(matrix) == rank for rank, matrix in ranks.items())


def test_the_folder_has_what_was_trained(folder: Path) -> None:
    for state in weights(folder, "lora"):
        assert all(
            "lora_" in name or "embedder" in name for name in set(state) - {"base", "params"}
        )
        # The number in the report is of the first rank.
        if state["params"]["model.adapter.rank"] == 2:
            assert sum(v.numel() for v in state.values() if torch.is_tensor(v)) == 228
    for state in weights(folder, "rest"):
        assert not [name for name in state if "blocks.0" in name or "patch_embed" in name]
        assert [name for name in state if "blocks.2" in name]


def test_the_report_has_the_row_without_training_and_both_numbers_of_parameters(
    folder: Path,
) -> None:
    for name, trained in (("lora", "| 228 of 9,060 |"), ("rest", "| 924 of 972 |")):
        report = (folder / "runs" / name / "report.md").read_text()
        assert "frozen features" in report
        assert "raw values" not in report
        assert trained in report
        assert "trials with larger batches see more samples" in report


@pytest.mark.parametrize("name", ["lora", "rest"])
def test_networks_are_loaded_and_scored_as_in_the_run(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    loaded = rc.load_network(f"runs/{name}", "normalized_softmax")
    embeddings = loaded.embed(load_dataset(rc.load_experiment(f"{name}.yaml").dataset))
    assert embeddings.shape == (160, 4)
    assert not [key for key in loaded.network.state_dict() if "lora_" in key]


def test_other_weights_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    shutil.copy("vit.pth", "kept.pth")
    try:
        torch.save({k: v + 1 for k, v in torch.load("vit.pth").items()}, "vit.pth")
        with pytest.raises(rc.UsageError, match="belong to the trunk with the weights sha256"):
            rc.load_network("runs/lora", "normalized_softmax")
    finally:
        shutil.move("kept.pth", "vit.pth")
