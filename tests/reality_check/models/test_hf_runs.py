"""From a YAML to a report with models of transformers, and their frozen features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.in_process import run_command
from support.paths import TINY

import reality_check as rc
from reality_check.data import read_tensors

SIZES = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
PROCESSOR = '{"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.2], "size": 16}'
pytestmark = pytest.mark.usefixtures("blank_figures", "workers_in_this_process")


@pytest.fixture
def vit(transformers: Any, tmp_path: Path) -> Any:
    torch.manual_seed(1)
    config = transformers.ViTConfig(image_size=16, patch_size=8, **SIZES)
    model = transformers.ViTModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(tmp_path / "vit")
    (tmp_path / "vit" / "preprocessor_config.json").write_text(PROCESSOR)
    return model


@pytest.fixture
def bert(transformers: Any, tmp_path: Path) -> Any:
    config = transformers.BertConfig(vocab_size=40, max_position_embeddings=8, **SIZES)
    model = transformers.BertModel(config).eval()
    model.save_pretrained(tmp_path / "bert")
    return model


def texts(folder: Path, length: int = 6, words: int = 40) -> str:
    draw = np.random.default_rng(0)
    x = draw.integers(1, words, (96, length))
    x[:, length - 2 :] = 0  # padding
    np.savez(folder / "texts.npz", x=x, y=np.arange(96) // 4)
    return str(folder / "texts.npz")


TEXTS = """
dataset: DATA
model: {name: encoder, trunk: "hf:TRUNK", weights: published}
protocol:
  base: features_quick
  split: {folds: 2}
  training:
    batch_size: 4
    iterations_per_epoch: 2
    max_epochs: 2
    embedding_size: 4
    optimizers: {trunk: {name: AdamW, lr: 1.0e-3}}
  search: {trials: 3, budget: 1, race: []}
methods: [quick/normalized_softmax]
device: cpu
"""


def experiment_on_texts(folder: Path, **options: int) -> Any:
    text = TEXTS.replace("DATA", texts(folder, **options)).replace("TRUNK", str(folder / "bert"))
    (folder / "texts.yaml").write_text(text)
    return rc.load_experiment(folder / "texts.yaml")


def test_a_vit_from_yaml_to_report(vit: Any, tmp_path: Path) -> None:
    trunk = [f"model.trunk=hf:{tmp_path / 'vit'}", "model.weights=published", "model.arguments={}"]
    results = rc.run(rc.load_experiment(TINY, trunk), tmp_path / "out")
    assert results.records()
    assert "sha256:" in (tmp_path / "out" / "report.html").read_text()


def test_a_sentence_encoder_from_yaml_to_report(bert: Any, tmp_path: Path) -> None:
    results = rc.run(experiment_on_texts(tmp_path), tmp_path / "out")
    assert results.records()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"words": 50}, "knows the token ids 0 to 39, but those of the samples are 0 to 49; make"),
        (
            {"length": 9},
            "is a BertModel, which does not take samples of 9 .*compare them with max_position",
        ),
    ],
)
def test_token_ids_that_do_not_fit(
    options: dict[str, int], words: str, bert: Any, tmp_path: Path
) -> None:
    with pytest.raises(rc.UsageError, match=words):
        rc.run(experiment_on_texts(tmp_path, **options), tmp_path / "out")
    assert not (tmp_path / "out" / "fold_runs").exists()
    folder = str(tmp_path / "bert")
    done = run_command(tmp_path, "embed", "texts.npz", "--trunk", f"hf:{folder}", "--out", "o")
    assert (done.returncode, words.split(".*")[0] in done.stderr) == (2, True)


@torch.no_grad()
def test_embedded_images_are_the_models_own_output(vit: Any, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x = draw.integers(0, 256, (12, 16, 16, 3)).astype(np.uint8)
    from PIL import Image

    for number, pixels in enumerate(x):
        file = tmp_path / "birds" / f"class{number // 3}" / f"{number:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    words = ["birds", "dataset.size=16", "--trunk", f"hf:{tmp_path / 'vit'}", "--out", "features"]
    done = run_command(tmp_path, "embed", *words)
    assert done.returncode == 0, done.stderr
    assert "12 x 8 float32" in done.stdout
    mean, std = (torch.tensor(v)[:, None, None] for v in ([0.4, 0.5, 0.6], [0.2, 0.3, 0.2]))
    images = (torch.from_numpy(x).permute(0, 3, 1, 2) / 255 - mean) / std
    expected = vit(pixel_values=images).last_hidden_state[:, 0]
    actual = torch.from_numpy(np.array(read_tensors(tmp_path / "features").samples.array()))
    assert (actual - expected).abs().max() <= 1e-6 * expected.abs().max()
