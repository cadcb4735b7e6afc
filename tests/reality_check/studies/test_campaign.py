from __future__ import annotations

from pathlib import Path

import pytest
from reality_check.studies.campaign import Campaign, final_epochs, storage_url
from support.paths import TINY

from reality_check.config import load_experiment
from reality_check.config.metrics import Stage
from reality_check.studies.storage import storage_file
from reality_check.studies.study import StudyPlan
from reality_check.utils.seeds import derive


@pytest.mark.parametrize(
    ("totals", "follow_ups", "step", "expected"),
    [
        # Section 6: totals averaging 37.2 give 40, follow-ups averaging 11.4 give 15, so 25 + 15.
        ([35, 36, 37, 38, 40], [10, 11, 12, 12, 12], 5, (25, 15)),
        ([40, 40], [15, 15], 5, (25, 15)),
        ([41, 40], [0, 0], 5, (45, 0)),
        ([3, 3], [3, 3], 5, (0, 5)),
        ([3, 4], [2, 3], 5, (5, 5)),  # the first phase is not rounded away
        ([7, 8], [2, 3], 1, (5, 3)),
        ([], [], 5, (5, 0)),
    ],
)
def test_final_epochs(
    totals: list[int], follow_ups: list[int], step: int, expected: tuple[int, int]
) -> None:
    assert final_epochs(totals, follow_ups, step) == expected


@pytest.mark.parametrize("seed", [3, 4])
def test_studies_draw_from_seeds_of_their_own_that_follow_from_the_experiments(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: dict[str, int] = {}

    def make(_: object, plan: StudyPlan) -> None:
        seeds[plan.name] = plan.seed

    monkeypatch.setattr("reality_check.studies.campaign.Study", make)
    url = f"storage=journal://{tmp_path / 'studies.log'}"
    campaign = Campaign(load_experiment(TINY, [url, f"seed={seed}"]), tmp_path)
    (method,) = campaign.experiment.methods
    campaign.study(method, Stage.SEARCH)
    campaign.baselines()
    names = f"{method.name}/search", "baselines"
    assert seeds == {name: derive(seed, name) for name in names}


def test_the_storage_is_the_named_one_or_a_file_of_the_output_folder(tmp_path: Path) -> None:
    url = storage_url(load_experiment(TINY), tmp_path)
    assert storage_file(url) == tmp_path.resolve() / "studies.db"
    named = load_experiment(TINY, ["storage=postgresql+psycopg://host/db"])
    assert storage_url(named, tmp_path) == "postgresql+psycopg://host/db"
