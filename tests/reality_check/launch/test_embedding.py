"""Frozen features of a data set: what the file holds, resuming, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.in_process import run_command

from reality_check.config.datasets import ImageFolderData
from reality_check.config.model import Model
from reality_check.data import load_dataset, read_tensors
from reality_check.data.source_images import _open_dataset
from reality_check.evaluation.gallery import _pictures
from reality_check.models import build_trunk
from reality_check.models.network import build_network
from reality_check.training.preflight import _check_stored
from reality_check.utils.errors import UsageError

CLASSES, EACH = 4, 3


class Halves(torch.nn.Module):
    """Means of the left and the right half of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if CALLS is not None:
            CALLS.append(len(images))
            if len(CALLS) == STOP_AT:
                raise KeyboardInterrupt
        halves = images.mean(dim=(1, 2)).unflatten(1, (2, -1)).mean(dim=2)
        return halves * self.scale


class Broken(Halves):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images) / 0


CALLS: list[int] | None = None
STOP_AT = 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of images, and the trunks of this file under a name."""
    module = ModuleType("my_trunks")
    module.Halves, module.Broken = Halves, Broken  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_trunks", module)
    monkeypatch.setenv("REALITY_CHECK_CACHE", str(tmp_path / "cache"))
    draw = np.random.default_rng(0)
    for label in range(CLASSES):
        (tmp_path / "birds" / f"class{label}").mkdir(parents=True)
        for number in range(EACH):
            pixels = draw.integers(0, 256, (16, 16, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "birds" / f"class{label}" / f"{number}.png")
    return tmp_path


def embed(folder: Path, *words: str, trunk: str = "my_trunks.Halves") -> Any:
    given = ["--trunk", trunk, "--out", "birds_features", "dataset.size=16", *words]
    return run_command(folder, "embed", "birds", *given)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.gpu
@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="torch before 2.9")
def test_a_gpu_computes_the_same_in_float32(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cudnn: Any = torch.backends.cudnn
    seen = []

    def look(module: torch.nn.Module, given: Any) -> None:
        if isinstance(module, Halves):
            seen.append((given[0].is_cuda, cudnn.conv.fp32_precision))

    hook = torch.nn.modules.module.register_module_forward_pre_hook(look)
    try:
        found = {}
        for device in ("cuda", "cpu"):
            assert embed(folder, "--batch-size", "5", "--device", device).returncode == 0
            found[device] = read_tensors(folder / "birds_features").samples.array()
            shutil.rmtree(folder / "birds_features")
    finally:
        hook.remove()
    on_gpu = [precision for is_cuda, precision in seen if is_cuda]
    assert on_gpu == ["ieee"] * 3
    assert found["cuda"] == pytest.approx(found["cpu"], abs=1e-5)


def test_the_file_holds_features_names_labels_and_where_it_comes_from(folder: Path) -> None:
    done = embed(folder, "--batch-size", "5")
    assert done.returncode == 0, done.stderr
    assert "birds_features: 12 x 2 float32" in done.stdout
    data = read_tensors(folder / "birds_features")
    config = ImageFolderData(
        name="birds", reader="image_folder", path=str(folder / "birds"), size=16
    )
    images = load_dataset(config)
    pixels = torch.from_numpy(np.array(images.samples)).permute(0, 3, 1, 2) / 255 * 2 - 1
    assert data.samples.array() == pytest.approx(Halves()(pixels).detach().numpy(), abs=1e-6)
    assert data.labels.tolist() == images.labels.tolist()
    assert data.class_names == images.class_names
    assert data.sample_names is not None
    assert data.sample_names[:2].tolist() == ["class0/0.png", "class0/1.png"]
    assert data.origin.startswith("birds through my_trunks.Halves, weights none (sha256 ")
    again = embed(folder)
    assert (again.returncode, "12 x 2" in again.stdout) == (0, True)
    assert sorted(path.name for path in folder.iterdir()) == ["birds", "birds_features", "cache"]


def test_a_gallery_shows_the_images_of_the_features_while_they_are_the_same(folder: Path) -> None:
    def shown(data: Any) -> np.ndarray:
        _open_dataset.cache_clear()  # as in a new process
        tested = data.subset([3, 1])
        return _pictures(tested, np.array([4, 0]))  # the cards are 128 pixels, the images 16

    assert embed(folder).returncode == 0
    file = folder / "birds_features"
    data = read_tensors(file)
    paths = [folder / "birds" / name for name in ("class3/1.png", "class1/0.png")]
    assert data.subset([3, 1]).sample_names.tolist()[4] == "class3/1.png"  # type: ignore[union-attr]
    images = [np.asarray(Image.open(path)) for path in paths]
    assert np.array_equal(shown(data), images)
    arrays = {path.stem: np.load(path) for path in file.iterdir()}
    np.savez(folder / "same.npz", **arrays)  # as earlier versions wrote them
    assert np.array_equal(shown(read_tensors(folder / "same.npz")), images)
    fewer = {name: arrays[name][:-1] for name in ("x", "y", "names")}
    np.savez(folder / "fewer.npz", **{**arrays, **fewer})
    assert shown(read_tensors(folder / "fewer.npz")).shape[1] == 128
    np.savez(folder / "other.npz", **{**arrays, "y": arrays["y"][::-1]})
    assert shown(read_tensors(folder / "other.npz")).shape[1] == 128
    Image.fromarray(images[0][::-1]).save(paths[0])
    assert shown(data).shape[1] == 128
    (folder / "birds").rename(folder / "away")
    assert shown(data).shape[1] == 128


def test_a_stopped_call_continues(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert embed(folder, "--batch-size", "2").returncode == 0
    whole = contents(folder / "birds_features")
    shutil.rmtree(folder / "birds_features")
    monkeypatch.setattr("reality_check.launch.embedding._RECORD_SECONDS", 0.0)
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "CALLS", [])
    monkeypatch.setattr(module, "STOP_AT", 5)  # the first call looks at the shape of the output
    assert embed(folder, "--batch-size", "2").returncode == 130
    assert not (folder / "birds_features").exists()
    monkeypatch.setattr(module, "STOP_AT", 0)
    monkeypatch.setattr(module, "CALLS", [])
    done = embed(folder, "--batch-size", "2")
    assert "Continuing after 6 of 12 samples" in done.stdout
    assert module.CALLS == [1, 2, 2, 2]
    assert contents(folder / "birds_features") == whole
    assert not (folder / "birds_features.partial").exists()


def test_a_stopped_call_of_another_trunk_is_not_continued(folder: Path) -> None:
    work = folder / "birds_features.partial"
    work.mkdir()
    np.save(work / "x.npy", np.ones((12, 2), np.float32))
    (work / "progress.json").write_text(json.dumps({"trunk": "another", "done": 8}))
    assert embed(folder).returncode == 0
    assert not (read_tensors(folder / "birds_features").samples.array() == 1).any()


@pytest.mark.parametrize(
    ("words", "trunk", "text"),
    [
        (["--crop-size", "8"], "my_trunks.Halves", "made in another way (crop_size differ)"),
        ([], "conv4", "(trunk, state differ); write another --out"),
        (["dataset.channels=1"], "my_trunks.Halves", "(data_fingerprint differ)"),
    ],
)
def test_a_file_of_other_features_is_left_alone(
    folder: Path, words: list[str], trunk: str, text: str
) -> None:
    assert embed(folder).returncode == 0
    before = contents(folder / "birds_features")
    done = embed(folder, *words, trunk=trunk)
    assert done.returncode == 2
    assert text in done.stderr
    assert contents(folder / "birds_features") == before


@pytest.mark.parametrize(
    ("words", "trunk", "text"),
    [
        ([], "my_trunks.Broken", "features of sample 0 by my_trunks.Broken are NaN"),
        ([], "my_trunks.Halfs", "Halfs"),
        (["protocol=quick"], "my_trunks.Halves", "changes neither the data set nor the model"),
        (["dataset.sise=3"], "my_trunks.Halves", "sise"),
        (["model.pooling=mean"], "my_trunks.Halves", "pooling must be one of"),
        (["--device", "cuda:9"], "my_trunks.Halves", "device 'cuda:9' is not here"),
        (["dataset.path=birds/.."], "my_trunks.Halves", "are of one class, 'birds'"),
        (["--out", "birds.npz"], "my_trunks.Halves", "into a folder of .npy files; write 'birds'"),
    ],
)
def test_refuses(folder: Path, words: list[str], trunk: str, text: str) -> None:
    done = embed(folder, *words, trunk=trunk)
    assert done.returncode == 2
    assert text in done.stderr
    assert not (folder / "birds_features").exists()


def test_a_path_that_is_not_there_is_no_name(folder: Path) -> None:
    done = run_command(folder, "embed", "./bird", "--trunk", "conv4", "--out", "o")
    assert (done.returncode, "no dataset named './bird', no folder" in done.stderr) == (2, True)


def test_random_weights_are_told(folder: Path) -> None:
    assert "The weights of conv4 are random" in embed(folder, trunk="conv4").stdout


def test_what_is_not_ours_is_never_replaced(folder: Path) -> None:
    (folder / "birds_features").mkdir()
    np.save(folder / "birds_features" / "x.npy", np.ones((3, 2)))
    done = embed(folder)
    assert (done.returncode, "no folder of reality-check embed" in done.stderr) == (2, True)


def test_tensors_can_be_embedded_too(folder: Path) -> None:
    draw = np.random.default_rng(1)
    np.savez(folder / "waves.npz", x=draw.normal(size=(6, 3, 4, 8)), y=np.arange(6) % 2)
    out = ["--trunk", "my_trunks.Halves", "--out", "o", "--dtype", "float16"]
    assert run_command(folder, "embed", "waves.npz", *out).returncode == 0
    assert read_tensors(folder / "o").samples.values.dtype == np.float16


# -- outputs of a module -------------------------------------------------------------------------

VIT = "model.arguments={img_size: 16, patch_size: 8, embed_dim: 8, depth: 3, num_heads: 1}"


@pytest.fixture
def vit(folder: Path) -> str:
    """The file of weights of a small transformer of timm."""
    pytest.importorskip("timm")
    torch.manual_seed(0)
    arguments = {"img_size": 16, "patch_size": 8, "embed_dim": 8, "depth": 3, "num_heads": 1}
    model = Model(name="x", trunk="timm:vit_tiny_patch16_224", arguments=arguments)
    file = folder / "vit.pth"
    torch.save(build_trunk(model, (16, 16, 3)).state_dict(), file)
    return str(file)


def embed_until(folder: Path, weights: str, *words: str) -> Any:
    given = ["--weights", weights, "--crop-size", "16", "--until", "blocks.1", VIT, *words]
    return embed(folder, *given, trunk="timm:vit_tiny_patch16_224")


def test_outputs_of_a_module_and_the_trunk_that_continues(folder: Path, vit: str) -> None:
    done = embed_until(folder, vit)
    assert done.returncode == 0, done.stderr
    out = folder / "birds_features"
    # 12 samples of 5 tokens with 8 numbers, of 2 bytes
    assert "The outputs of blocks.1 take 9.6e-07 GB" in done.stdout
    assert (
        f"model: {{trunk: {{from: {out}}}}} and protocol: finetune_from_file"
        in done.stdout.replace("birds_features}", f"{out}}}")
    )
    x = np.load(out / "x.npy")
    assert (x.shape, x.dtype) == ((12, 5, 8), np.float16)
    model = Model.model_validate({"name": "x", "trunk": {"from": str(out)}})
    assert (model.trunk, model.weights) == ("timm:vit_tiny_patch16_224", vit)
    assert model.frozen == "blocks.1"
    assert model.stored is not None
    assert model.stored.images == (16, 16, 3)
    data = read_tensors(out)
    assert ", outputs of blocks.1" in data.origin
    # What the whole trunk says of the images, up to the precision of the file.
    rest = build_network(model, data.samples.input_shape, 4, seed=0).eval()
    embed(folder, "--weights", vit, VIT, "--out", "whole",  # crops of img_size
          trunk="timm:vit_tiny_patch16_224")  # fmt: skip
    whole = torch.from_numpy(np.load(folder / "whole" / "x.npy"))
    resumed = rest.features(torch.from_numpy(x).float())
    torch.testing.assert_close(resumed, whole, rtol=1e-2, atol=1e-2)


def test_outputs_of_a_module_that_do_not_fit(folder: Path, vit: str) -> None:
    assert embed_until(folder, vit).returncode == 0
    out = str(folder / "birds_features")
    model = Model.model_validate({"name": "x", "trunk": {"from": out}})
    data = read_tensors(out)
    _check_stored(model, data)
    words = "the trunk continues after blocks.1, but .* does not hold its outputs there"
    with pytest.raises(UsageError, match=words):
        _check_stored(model, dataclasses.replace(data, origin="elsewhere"))
    torch.save({k: v + 1 for k, v in torch.load(vit).items()}, vit)
    with pytest.raises(UsageError, match="were computed with other weights of timm:vit_tiny"):
        _check_stored(model, data)


class Skips(torch.nn.Module):
    """A trunk whose end needs more than the output of its first module."""

    def __init__(self, share: float = 1.0) -> None:
        super().__init__()
        self.first, self.second, self.share = torch.nn.Flatten(), torch.nn.Identity(), share

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(images)) + self.share * images.flatten(1)


class Counts(Skips):
    """A trunk that counts its images."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(images)).view(len(images), 768)


@pytest.mark.parametrize(
    ("trunk", "name", "words"),
    [
        (Skips, "firs", "trunk has no module 'firs' to be frozen up to. Did you mean 'first'?"),
        (Skips, "first", "my_trunks.Mine cannot be resumed after first: what follows needs more"),
        (partial(Skips, 0.01), "first", "what follows needs more than its output; name a later"),
        (Counts, "first", "name a later module: RuntimeError: shape '[1, 768]' is invalid for"),
    ],
)
def test_modules_after_which_a_trunk_cannot_be_resumed(
    trunk: Any, name: str, words: str, folder: Path
) -> None:
    sys.modules["my_trunks"].Mine = trunk  # type: ignore[attr-defined]
    refused = embed(folder, "--until", name, trunk="my_trunks.Mine")
    assert refused.returncode == 2
    assert words in refused.stderr
    assert not (folder / "birds_features").exists()
