"""Weight files as people have them: wrapped, prefixed, old, foreign, broken, hostile."""

from __future__ import annotations

import pickle
import struct
import types
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from reality_check.models import Conv4
from reality_check.models.weight_files import fit_state, read_state
from reality_check.utils.errors import UsageError

State = dict[str, Tensor]


def weights() -> State:
    torch.manual_seed(5)
    trunk = Conv4(3, 4)
    for part in trunk:
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.bias)
            nn.init.normal_(part.running_mean)
    return trunk.state_dict()


def load(file: Path) -> State:
    torch.manual_seed(6)
    trunk = Conv4(3, 4)
    fit_state(trunk, read_state(file, "trunk conv4"), "trunk conv4", "the file")
    return trunk.state_dict()


def prefixed(state: State, prefix: str) -> State:
    return {f"{prefix}{name}": value for name, value in state.items()}


def as_rows(state: State) -> State:
    """BatchNorm's vectors as matrices of one row, and no counters, as in files of 2017."""
    counted = {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}
    return {k: v[None] if v.ndim == 1 else v for k, v in counted.items()}


CLASSIFIER = {"fc.weight": torch.rand(9, 4), "fc.bias": torch.rand(9)}
SHAPES: list[tuple[str, Callable[[State], Any]]] = [
    ("alone", lambda state: state),
    ("ordered", OrderedDict),
    ("with a classifier", lambda state: {**state, **CLASSIFIER}),
    ("state_dict", lambda state: {"state_dict": state, "epoch": 3, "best": 0.5}),
    ("model", lambda state: {"model": state, "optimizer": {"state": {}}}),
    ("nested", lambda state: {"model": {"state_dict": state}}),
    ("DataParallel", lambda state: {"state_dict": prefixed({**state, **CLASSIFIER}, "module.")}),
    ("ours", lambda state: {**prefixed(state, "trunk."), "embedder.weight": torch.rand(5, 4)}),
    ("two prefixes", lambda state: prefixed(state, "module.backbone.")),
    ("rows", as_rows),
]


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("shape", [shape for _, shape in SHAPES], ids=[name for name, _ in SHAPES])
def test_every_shape_of_file(shape: Callable[[State], Any], legacy: bool, tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    torch.save(shape(weights()), file, _use_new_zipfile_serialization=not legacy)
    loaded = load(file)
    assert all(torch.equal(loaded[name], value) for name, value in weights().items())


class Python2Pickler(pickle._Pickler):  # type: ignore[name-defined]
    """Writes strings as Python 2 did, which wrote BN-Inception's file."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_bytes_string(self, text: str) -> None:
        data = text.encode()
        self.write(pickle.SHORT_BINSTRING + struct.pack("<B", len(data)) + data)
        self.memoize(text)

    dispatch[str] = save_bytes_string


def test_a_file_that_python_2_wrote(tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    module = types.SimpleNamespace(
        __name__="python2",
        Pickler=Python2Pickler,
        dump=lambda value, stream, protocol: Python2Pickler(stream, protocol).dump(value),
    )
    torch.save(
        OrderedDict(as_rows(weights())),
        file,
        pickle_module=module,
        _use_new_zipfile_serialization=False,
    )
    assert b"U\x08" in file.read_bytes() or b"U\x0b" in file.read_bytes()
    loaded = load(file)
    assert all(torch.equal(loaded[name], value) for name, value in weights().items())


def test_safetensors(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="needs safetensors (timm has it)")
    plain = {name: value.contiguous() for name, value in weights().items()}
    safetensors.save_file(plain, tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert all(torch.equal(loaded[name], value) for name, value in weights().items())


class Code:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("executed"),))


def test_code_in_a_file_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": weights(), "extra": Code()}, "weights.pth")
    with pytest.raises(UsageError, match=r"could run code; save weights alone"):
        load(Path("weights.pth"))
    assert not Path("executed").exists()


def without(name: str) -> State:
    return {key: value for key, value in weights().items() if key != name}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (without("3.weight"), r"lacks 3\.weight of the trunk"),
        ({**weights(), "12.weight": torch.ones(1)}, r"also holds 12\.weight, which"),
        ({**weights(), "0.weight": torch.ones(4, 1, 3, 3)}, r"\(4, 1, 3, 3\) .*\(4, 3, 3, 3\)"),
        ({**weights(), "1.weight": torch.ones(5)}, r"1\.weight is \(5,\)"),
        ({"a": torch.ones(1), "b": torch.ones(1)}, r"another network \(a, b\).* 0\.weight, 1\."),
        ({"epoch": 3}, "holds no weights but a dict"),
        ([torch.ones(1)], "holds no weights but a list"),
        (torch.ones(1), "holds no weights but a Tensor"),
    ],
)
def test_what_does_not_fit_is_named(state: Any, words: str, tmp_path: Path) -> None:
    torch.save(state, tmp_path / "weights.pth")
    with pytest.raises(UsageError, match=words):
        load(tmp_path / "weights.pth")


def test_a_trunk_stays_as_it_was_when_weights_do_not_fit() -> None:
    trunk = Conv4(3, 4)
    before = {name: value.clone() for name, value in trunk.state_dict().items()}
    with pytest.raises(UsageError):
        fit_state(trunk, without("10.weight"), "trunk conv4", "the file")
    assert all(torch.equal(value, before[name]) for name, value in trunk.state_dict().items())


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"PK\x03\x04half of a zip"])
def test_what_is_no_weight_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(content)
    with pytest.raises(UsageError, match=r"trunk conv4: .*weights\.pth"):
        load(tmp_path / "weights.pth")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.pth cannot be read as a weight file"):
        load(tmp_path / "nothing.pth")
