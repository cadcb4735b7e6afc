from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from reality_check.models.trunk_names import find_source
from reality_check.utils.errors import UsageError


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("conv4", "trunk conv4"),
        ("bn_inception", "trunk bn_inception"),
        ("my_models.Trunk", "trunk my_models.Trunk"),
    ],
)
def test_names_that_need_no_library(name: str, title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert find_source(name).title == title


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("resnet18", "trunk torchvision:resnet18"),
        ("torchvision:resnet18", "trunk torchvision:resnet18"),
        ("timm:resnet18", "trunk timm:resnet18"),
        ("timm:resnet18.a1_in1k", "trunk timm:resnet18.a1_in1k"),
        ("resnetv2_50", "trunk timm:resnetv2_50"),
    ],
)
def test_names_of_the_libraries(name: str, title: str, torchvision: Any, timm: Any) -> None:
    assert find_source(name).title == title


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet5o", "no trunk named 'resnet5o'.* Did you mean 'resnet50'"),
        ("torchvision:resnet5o", "torchvision has no .*'resnet5o'. Did you mean 'resnet50'"),
        ("timm:resnet5o", "timm has no network named 'resnet5o'. Did you mean 'resnet50'"),
        ("timm:resnet18.a9_in1k", "timm has no weights 'a9_in1k' for resnet18; .*a1_in1k"),
    ],
)
def test_unknown_names_of_the_libraries(name: str, words: str, torchvision: Any, timm: Any) -> None:
    with pytest.raises(UsageError, match=words):
        find_source(name)


def test_an_unknown_library() -> None:
    with pytest.raises(UsageError, match=r"'keras'; write torchvision:resnet50, timm:resnet50"):
        find_source("keras:resnet50")


@pytest.mark.parametrize("name", ["torchvision:resnet18", "timm:resnet18"])
def test_a_library_that_is_not_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = name.partition(":")[0]
    monkeypatch.setitem(sys.modules, library, None)
    words = rf"trunk {name} needs {library}, .*pip install 'pml-extensions\[vision\]'"
    with pytest.raises(UsageError, match=words):
        find_source(name)


def test_a_typo_without_libraries_names_ours_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(
        UsageError, match=r"mean 'conv4'.*To use a name of torchvision .*pip install"
    ):
        find_source("conv_4")


def test_a_library_that_does_not_fit_the_installed_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('no operator nms')")
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = r"cannot be imported with torch .*no operator nms.*install the torchvision made for"
    for name in ("torchvision:resnet18", "resnet18"):
        with pytest.raises(UsageError, match=rf"^trunk {name} needs torchvision, .*{words}"):
            find_source(name)
