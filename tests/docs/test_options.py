"""The pages name what a YAML may say."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest
from pytorch_metric_learning.utils import logging_presets

from reality_check.config.protocol import Split

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    "rule", sorted({*get_args(Split.model_fields["rule"].annotation)} - {"own"})
)
def test_the_page_on_the_protocol_names_every_rule_of_folds(rule: str) -> None:
    """``own`` is what classes that are named make of it, and not written."""
    lines = (DOCS / "protocol.md").read_text(encoding="utf-8").splitlines()
    row = next(line for line in lines if line.startswith("| folds |"))
    assert f"Rule `{rule}`" in row


def test_the_page_on_losses_says_what_pml_s_hooks_need() -> None:
    """They fail at their first record where it is not installed."""
    text = inspect.getsource(logging_presets)
    needed = re.findall(r"^# pip install (.+)$", text, re.M)
    assert needed == ["record-keeper tensorboard"]
    assert f"pip install {needed[0]}" in (DOCS / "losses/README.md").read_text(encoding="utf-8")
