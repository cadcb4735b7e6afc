from __future__ import annotations

from pathlib import Path

from support.paths import TINY

from reality_check.config import load_experiment
from reality_check.studies.recorded_experiment import storage_url
from reality_check.studies.storage import storage_file


def test_the_storage_is_the_named_one_or_a_file_of_the_output_folder(tmp_path: Path) -> None:
    url = storage_url(load_experiment(TINY), tmp_path)
    assert storage_file(url) == tmp_path.resolve() / "studies.db"
    named = load_experiment(TINY, ["storage=postgresql+psycopg://host/db"])
    assert storage_url(named, tmp_path) == "postgresql+psycopg://host/db"
