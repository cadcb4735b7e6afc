"""A loss is one file and the package ``_shared``: elsewhere, they give the golden numbers."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.paths import GOLDEN, ROOT

FILES = (
    *(
        f"_shared/{name}.py"
        for name in ("__init__", "base_losses", "checks", "numerics", "quadruples", "softmax")
    ),
    "losses/normalized_softmax_loss.py",
    "losses/grad_ml_loss.py",
)
CASES: dict[str, Any] = {
    name: case
    for name, case in json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"].items()
    if name.startswith(("normsoftmax_sigma", "gradml_quad", "gradml_batch"))
    and not name.endswith("_subset")
}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with these files alone, where ours cannot be imported."""
    for folder in ("elsewhere", "elsewhere/losses", "elsewhere/_shared"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    for name in FILES:
        shutil.copy(ROOT / "pml_extensions" / name, tmp_path / "elsewhere" / name)
    for name in [n for n in sys.modules if n.partition(".")[0] in ("pml_extensions", "elsewhere")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pml_extensions", None)
    monkeypatch.syspath_prepend(tmp_path)
    return "elsewhere.losses"


@pytest.mark.filterwarnings("ignore:GradMLLoss without normalize_embeddings")
def test_two_losses_and_their_helper_alone(elsewhere: str) -> None:
    softmax = importlib.import_module(f"{elsewhere}.normalized_softmax_loss").NormalizedSoftmaxLoss
    grad_ml = importlib.import_module(f"{elsewhere}.grad_ml_loss").GradMLLoss
    assert len(CASES) > 5
    for name, case in CASES.items():
        options = {key: value for key, value in case["params"].items() if key != "labels"}
        inputs = {
            key: torch.tensor(value, dtype=torch.float64, requires_grad=True)
            for key, value in case["inputs"].items()
        }
        if name.startswith("gradml"):
            loss = grad_ml(**options)
            leaves = {"e": inputs["e"]}
        else:
            loss = softmax(4, 3, options["temperature"])
            loss.proxies = torch.nn.Parameter(inputs["W"].detach())
            leaves = {"x": inputs["x"], "W": loss.proxies}
        value = loss(next(iter(leaves.values())), torch.tensor(case["params"]["labels"]))
        grads = torch.autograd.grad(value, list(leaves.values()))
        expected = [case["expected"]["loss"], *(case["expected"]["grads"][key] for key in leaves)]
        for actual, wanted in zip((value.detach(), *grads), expected, strict=True):
            wanted = torch.tensor(wanted, dtype=torch.float64)
            torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-9)
