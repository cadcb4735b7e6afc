"""Weights, fingerprints and preprocessing of trunks that need no library."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.file_server import served

from reality_check.config.model import Model
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.models import (
    BNInception,
    Conv4,
    input_channels,
    own_trunks,
    preprocessing,
    trunk_building,
    weights_fingerprint,
)
from reality_check.models.network import build_network
from reality_check.utils.errors import UsageError

CAFFE = Preprocessing((104.0, 117.0, 128.0), (1.0, 1.0, 1.0), scale=255.0, bgr=True)


def conv4(**changes: Any) -> Model:
    values = {"name": "x", "trunk": "conv4", "arguments": {"width": 4}}
    return Model.model_validate({**values, **changes})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.manual_seed(11)
    torch.save(Conv4(3, 4).state_dict(), tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def states(**arguments: Any) -> dict[str, torch.Tensor]:
    return build_network(conv4(**arguments), (32, 32, 3), 5, seed=1).state_dict()


def test_the_trunk_is_from_the_file_and_the_embedder_from_the_seed(file: Path) -> None:
    random, loaded = states(), states(weights=str(file))
    for name, value in torch.load(file).items():
        assert torch.equal(loaded[f"trunk.{name}"], value)
    assert not torch.equal(random["trunk.0.weight"], loaded["trunk.0.weight"])
    assert torch.equal(random["embedder.weight"], loaded["embedder.weight"])


def test_without_pretrained_weights_the_network_is_that_of_the_seed(file: Path) -> None:
    model = conv4(weights=str(file))
    network = build_network(model, (32, 32, 3), 5, seed=1, pretrained=False)
    assert all(torch.equal(network.state_dict()[k], value) for k, value in states().items())


def test_a_process_reads_a_file_once_and_again_when_it_changed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def count(path: Path, title: str) -> dict[str, torch.Tensor]:
        read.append(path)
        return dict(torch.load(path))

    monkeypatch.setattr(trunk_building, "read_state", count)
    first = states(weights=str(file))
    first["trunk.0.weight"].zero_()
    assert states(weights=str(file))["trunk.0.weight"].any()
    assert read == [file]
    torch.save({**torch.load(file), "fc.weight": torch.ones(1)}, file)
    states(weights=str(file))
    assert read == [file, file]


def test_paths_may_hold_variables(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIGHTS", str(file.parent))
    torch.testing.assert_close(
        states(weights="${WEIGHTS}/weights.pth"), states(weights=str(file)), rtol=0, atol=0
    )


def test_fingerprints(file: Path) -> None:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert weights_fingerprint(conv4()) is None
    assert weights_fingerprint(conv4(weights=str(file))) == f"sha256:{digest}"
    name = "bn_inception-52deb4733.pth"
    assert weights_fingerprint(Model(name="x", trunk="bn_inception", weights="imagenet")) == name
    file.write_bytes(b"other")
    digest = hashlib.sha256(b"other").hexdigest()
    assert weights_fingerprint(conv4(weights=str(file))) == f"sha256:{digest}"


@pytest.mark.parametrize("ask", [weights_fingerprint, states])
def test_a_file_that_is_not_there(ask: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "gone.pth")
    with pytest.raises(UsageError, match=r"there is not a weight file .*gone\.pth"):
        ask(weights=path) if ask is states else ask(conv4(weights=path))


@pytest.mark.parametrize(
    ("trunk", "weights", "words"),
    [
        ("conv4", "imagenet", "trunk conv4 has no weights 'imagenet'; write weights: none or"),
        ("bn_inception", "imagnet", "weights: none, published or the path"),
        ("torch.nn.Identity", "V1", "trunk torch.nn.Identity has no weights 'V1'"),
    ],
)
def test_weights_that_do_not_exist(trunk: str, weights: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        build_network(Model(name="x", trunk=trunk, weights=weights), (32, 32, 3), 5, seed=1)


# Preprocessing


@pytest.mark.parametrize("channels", [1, 3])
def test_networks_from_scratch_get_values_from_minus_one_to_one(channels: int) -> None:
    for trunk in ("conv4", "bn_inception", "resnet50"):
        model = Model(name="x", trunk=trunk)
        assert preprocessing(model, channels) == Preprocessing((0.5,), (0.5,))
        assert input_channels(model, channels) == channels


@pytest.mark.parametrize("weights", ["imagenet", "/a/file.pth"])
@pytest.mark.parametrize("channels", [1, 3])
def test_bn_inception_gets_bgr_of_0_to_255(weights: str, channels: int) -> None:
    model = Model(name="x", trunk="bn_inception", weights=weights)
    assert preprocessing(model, channels) == CAFFE
    assert input_channels(model, channels) == 3


def test_the_yaml_may_change_the_preprocessing(file: Path) -> None:
    changes = {"mean": [0.1, 0.2, 0.3], "std": 0.25}
    actual = preprocessing(conv4(preprocessing=changes), 3)
    assert actual == Preprocessing((0.1, 0.2, 0.3), (0.25,))
    assert input_channels(conv4(preprocessing=changes), 1) == 3
    model = Model.model_validate(
        {"name": "x", "trunk": "bn_inception", "weights": "imagenet"}
        | {"preprocessing": {"mean": 100, "bgr": False}}
    )
    expected = Preprocessing((100.0,) * 3, (1.0,) * 3, scale=255.0, bgr=False)
    assert preprocessing(model, 1) == preprocessing(model, 3) == expected


def test_preprocessing_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="std"):
        preprocessing(conv4(preprocessing={"std": 0}), 3)
    with pytest.raises(UsageError, match="bgr is for images of 3 channels"):
        preprocessing(conv4(preprocessing={"bgr": True}), 1)


def test_grey_images_enter_a_trunk_of_rgb_weights_three_times(tmp_path: Path) -> None:
    torch.save(BNInception().state_dict(), tmp_path / "bn.pth")
    model = Model(name="x", trunk="bn_inception", weights=str(tmp_path / "bn.pth"))
    network = build_network(model, (64, 64, 1), 5, seed=0)
    assert network(torch.rand(2, 3, 64, 64)).shape == (2, 5)


# BN-Inception's file, from a server on this machine


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    folder = tmp_path / "served"
    folder.mkdir()

    with served(folder) as address:
        yield address, folder


def serve(server: tuple[str, Path], digest: str | None = None) -> str:
    """Put a file of weights on the server, under a name with its (or another) hash."""
    address, folder = server
    torch.manual_seed(3)
    torch.save(BNInception().state_dict(), folder / "bn.pth")
    digest = digest or hashlib.sha256((folder / "bn.pth").read_bytes()).hexdigest()
    name = f"bn_inception-{digest[:9]}.pth"
    (folder / "bn.pth").rename(folder / name)
    return f"{address}/{name}"


IMAGENET = Model(name="x", trunk="bn_inception", weights="imagenet")


def test_published_weights_are_downloaded_once(
    server: tuple[str, Path], hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = serve(server)
    monkeypatch.setattr(own_trunks, "BN_INCEPTION_URL", url)
    torch.manual_seed(3)
    expected = BNInception().state_dict()
    for attempt in range(2):
        network = build_network(IMAGENET, (64, 64, 3), 5, seed=attempt)
        assert torch.equal(
            network.state_dict()["trunk.conv2_3x3.weight"], expected["conv2_3x3.weight"]
        )
        for file in server[1].iterdir():
            file.unlink()
        trunk_building._read_weights.cache_clear()
    assert [file.name for file in hub.iterdir()] == [url.rpartition("/")[2]]


def test_a_download_of_another_content_is_refused_and_removed(
    server: tuple[str, Path], hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_trunks, "BN_INCEPTION_URL", serve(server, "0" * 9))
    with pytest.raises(UsageError, match=r"could not be downloaded .*hash"):
        build_network(IMAGENET, (64, 64, 3), 5, seed=0)
    assert list(hub.iterdir()) == []


def test_without_a_network_the_message_says_what_to_fetch_and_where_to_put_it(
    hub: Path, offline: None
) -> None:
    with pytest.raises(UsageError) as raised:
        build_network(IMAGENET, (64, 64, 3), 5, seed=0)
    text = str(raised.value)
    assert "download http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth" in text
    assert f"put it as bn_inception-52deb4733.pth into {hub}" in text
    assert "or write weights: /a/folder/bn_inception-52deb4733.pth" in text
    hub.mkdir(parents=True, exist_ok=True)
    torch.save(BNInception().state_dict(), hub / "bn_inception-52deb4733.pth")
    build_network(IMAGENET, (64, 64, 3), 5, seed=0)
