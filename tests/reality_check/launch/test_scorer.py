from __future__ import annotations

from typing import Any

import pytest
from support.spied import Made

from reality_check.evaluation import baselines


def test_baselines_see_the_test_images_through_one_pipeline(
    make: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU each pipeline holds a copy of the images."""
    campaign = make()
    scorer, built = campaign.runner.scorer, []
    build = baselines.build_pipeline

    def count(images: Any, *arguments: Any) -> Any:
        built.append(images)
        return build(images, *arguments)

    monkeypatch.setattr(baselines, "build_pipeline", count)
    first, second = scorer.score_baselines(0), scorer.score_baselines(1)
    assert len(built) == 1, "that of the images whose components are fitted"
    assert len(scorer._pipelines) == 1
    assert {"raw pixels", "untrained trunk"} <= set(first)
    assert "raw pixels" not in second
