"""What a run of the contracts says of failures: how bad, what they cost, the worst first."""

from __future__ import annotations

from pathlib import Path

import pytest

from pml_extensions.testing import LossContract
from pml_extensions.testing._ranking import consequence_of

FILE = """\
import torch
from pml_extensions.testing import ProxyLossContract

class Angular(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proxies = torch.nn.Parameter(torch.randn(5, 7))

    def forward(self, x, labels):
        cosines = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(self.proxies).t()
        angles = torch.acos(cosines) + 0.2 * torch.eye(5)[labels]
        return torch.nn.functional.cross_entropy(angles.cos(), labels)

class TestAngular(ProxyLossContract):
    known_failures = {"test_autocast_changes_nothing": "never used"}

    def make_loss(self):
        return Angular()
"""


def test_failures_of_a_plain_module_are_ranked_and_what_it_has_not_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    file = tmp_path / "test_angular.py"
    file.write_text(FILE)
    words = [
        "-q",
        "-s",
        "-rs",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    chosen = "on_their_proxies or int32 or have_entries or autocast or recorded"
    assert pytest.main([*words, f"--rootdir={tmp_path}", "-k", chosen, str(file)]) == 1
    said = capsys.readouterr().out
    assert said.index("Wrong results: 1") < said.index("Broken conventions: 1")
    assert "TestAngular::test_embeddings_on_their_proxies_are_finite: weights become NaN" in said
    assert "TestAngular::test_labels_may_be_int32: int32 labels are refused; write" in said
    assert "does not apply to a loss without sub_loss_names" in said
    assert "does not apply to a loss without get_logits" in said
    assert "test_autocast" not in said, "an expected failure costs nothing"
    assert len(said.splitlines()) < 40, "no tracebacks"


def test_a_check_without_costs_is_a_wrong_result() -> None:
    class Mine(LossContract):
        def test_labels_may_be_int32(self) -> None:
            super().test_labels_may_be_int32()

        def test_of_mine(self) -> None:
            """It is mine."""

    assert consequence_of(Mine, "test_of_mine[case]") == ("Wrong result", "It is mine.")
    assert consequence_of(Mine, "test_labels_may_be_int32")[0] == "Broken convention"
    of_empty = consequence_of(Mine, "test_degenerate_batches_are_finite[empty]")
    assert of_empty[0] == "Broken convention"
    assert consequence_of(Mine, "test_degenerate_batches_are_finite[one]")[0] == "Wrong result"
