"""Which keys may differ: written out here, marked in the schema there."""

from __future__ import annotations

import pytest

from reality_check.config import load_experiment
from reality_check.config.differences import value_at
from reality_check.config.neutral_keys import is_result_neutral, is_table_neutral, marked_keys

RUNS = {
    *("device", "studies", "slurm", "command", "published_results", "report"),
    *("protocol.described", "protocol.training.gpu", "methods.training.gpu", "methods.packed.file"),
    *(
        "dataset.path",
        "dataset.download",
        "dataset.arguments.path",
        "dataset.arguments.root",
        "code.data set from",
    ),
}
EXPERIMENTS = {
    *("name", "seed", "storage", "methods", "controls", "model.name"),
    *("protocol.search.kind", "protocol.search.repeats"),
    *(
        "protocol.name",
        "protocol.note",
        "protocol.gallery",
        "protocol.final_metrics",
        "protocol.pairs",
    ),
}


def test_the_marked_keys() -> None:
    assert marked_keys("runs") == RUNS
    assert marked_keys("experiments") == EXPERIMENTS


@pytest.mark.parametrize(
    "key",
    [
        *("slurm.hours", "device", "code.data set from"),
        *("protocol.training.gpu.channels_last", "methods.contrastive.training.gpu.cuda_graph"),
    ],
)
def test_no_result_depends_on_a_key_or_one_below_it(key: str) -> None:
    assert is_result_neutral(key)
    assert is_table_neutral(key), "what no result depends on keeps none out of a table"


@pytest.mark.parametrize("key", ["methods.contrastive.loss", "seed", "protocol.note"])
def test_what_decides_results_may_stand_in_one_table(key: str) -> None:
    assert is_table_neutral(key)
    assert not is_result_neutral(key)


@pytest.mark.parametrize(
    "key",
    [
        *("code", "code.dataset", "devices", "dataset.size", "dataset.arguments.classes"),
        *("model.trunk", "protocol.training.batch_size", "protocol.reference", "claims"),
    ],
)
def test_other_keys_may_not_differ(key: str) -> None:
    assert not is_table_neutral(key)


def test_plain_data_have_the_same_names() -> None:
    plain = load_experiment("quickstart", ["protocol=mlrc_5x10"]).plain()
    for key in {*RUNS, *EXPERIMENTS}:
        if not key.startswith(("dataset.", "code.", "methods.")):
            assert value_at(plain, key, "absent") != "absent", key
