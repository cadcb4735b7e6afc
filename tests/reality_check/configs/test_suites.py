"""The suites that ship with the package."""

from __future__ import annotations

import pytest
from support.experiments import SUITES

from reality_check.config.suite import Suite, load, load_suite
from reality_check.config.yaml_text import read_yaml
from reality_check.studies.plan import count_trainings
from reality_check.training.preflight import check_loss
from reality_check.utils.config_files import shipped_files

#: Trainings of a fold for a loss on one data set.
PRICES = {"four_subsets": 258, "four_features": 88}


def test_no_other_file_is_a_suite() -> None:
    files = shipped_files("experiments")
    assert {name for name in files if "suite" in read_yaml(files[name])} == {*SUITES}


@pytest.mark.parametrize("name", SUITES)
def test_four_data_sets_with_the_same_losses_and_seeds_of_their_own(name: str) -> None:
    suite = load_suite(name)
    assert isinstance(load(name), Suite)
    assert [*suite.members] == ["cub200", "cars196", "stanford_online_products", "in_shop"]
    experiments = list(suite.members.values())
    assert len({experiment.seed for experiment in experiments}) == 4
    for experiment in experiments:
        assert count_trainings(experiment) == PRICES[name] * len(experiment.methods)
        assert {m.name for m in experiment.methods} == {m.name for m in experiments[0].methods}
    assert suite.members["in_shop"].protocol.split.test_classes == "official"


@pytest.mark.parametrize("name", SUITES)
def test_no_loss_is_turned_away(name: str) -> None:
    first = next(iter(load_suite(name).members.values()))
    for method in first.methods:
        assert check_loss(first, method).problem is None
