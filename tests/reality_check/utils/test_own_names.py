"""The names that an output folder keeps for itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.recorded_runs import experiment, record

from reality_check import api
from reality_check.utils.own_names import RESERVED, own_path


@pytest.mark.usefixtures("undrawn")
def test_a_finished_folder_holds_no_name_that_a_method_could_have(tmp_path: Path) -> None:
    done = experiment()
    record(done, tmp_path / "a")
    record(experiment("methods=[quick/contrastive]"), tmp_path / "b")
    api.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "both")
    api.track(tmp_path / "both", ["tensorboard"])
    names = {path.name for path in (tmp_path / "both").iterdir()}
    assert {"merged_from.json", "report.html", "tensorboard", "trackers"} <= names
    assert {name for name in names if not RESERVED.fullmatch(name)} == {
        "normalized_softmax",
        "contrastive",
    }


def test_what_is_not_in_the_list_cannot_be_written() -> None:
    assert own_path(Path("out"), "logs/worker_0.log") == Path("out/logs/worker_0.log")
    with pytest.raises(AssertionError, match="RESERVED"):
        own_path(Path("out"), "new.json")
