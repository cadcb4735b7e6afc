"""The pages name what a YAML may say."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

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
