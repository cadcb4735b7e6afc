"""Names that the schema writes out, because what has them takes seconds to import."""

from __future__ import annotations

from pml_extensions.evaluation import CORRUPTIONS
from pml_extensions.modules import HEAD_PRESETS
from reality_check.config import metrics, model


def test_the_schema_knows_all_corruptions_and_heads() -> None:
    assert tuple(CORRUPTIONS) == metrics.CORRUPTIONS
    assert tuple(HEAD_PRESETS) == model.HEADS
