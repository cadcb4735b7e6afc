from __future__ import annotations

from pathlib import Path

import pytest
from support.paths import TINY

from reality_check.config import load_experiment
from reality_check.studies.campaign import final_epochs, storage_url


@pytest.mark.parametrize(
    ("totals", "follow_ups", "step", "expected"),
    [
        # Section 6: totals averaging 37.2 give 40, follow-ups averaging 11.4 give 15, so 25 + 15.
        ([35, 36, 37, 38, 40], [10, 11, 12, 12, 12], 5, (25, 15)),
        ([40, 40], [15, 15], 5, (25, 15)),
        ([41, 40], [0, 0], 5, (45, 0)),
        ([3, 3], [3, 3], 5, (0, 5)),
        ([7, 8], [2, 3], 1, (5, 3)),
        ([], [], 5, (5, 0)),
    ],
)
def test_final_epochs(
    totals: list[int], follow_ups: list[int], step: int, expected: tuple[int, int]
) -> None:
    assert final_epochs(totals, follow_ups, step) == expected


def test_the_storage_is_the_named_one_or_a_file_of_the_output_folder(tmp_path: Path) -> None:
    url = storage_url(load_experiment(TINY), tmp_path)
    assert url == f"sqlite:///{tmp_path.resolve() / 'studies.db'}"
    named = load_experiment(TINY, ["storage=postgresql+psycopg://host/db"])
    assert storage_url(named, tmp_path) == "postgresql+psycopg://host/db"
