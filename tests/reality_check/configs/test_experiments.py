"""The experiments that ship with the package."""

from __future__ import annotations

import pytest
from support.experiments import EXPERIMENTS, shipped

from reality_check.cli.main import main
from reality_check.config import compose
from reality_check.config.yaml_text import dump_yaml, parse_yaml
from reality_check.report.deviations import find_deviations
from reality_check.training.methods import search_space
from reality_check.utils.config_files import shipped_files

FILES = {name: shipped_files("experiments")[name] for name in EXPERIMENTS}
MLRC = ["cub200_mlrc", "cars196_mlrc", "sop_mlrc", "in_shop_mlrc"]
APPENDIX_D = ["cub200_appendix_d", "cars196_appendix_d", "sop_appendix_d", "in_shop_appendix_d"]
#: The losses of the Reality Check.
PUBLISHED = {
    "contrastive",
    "triplet_margin",
    "nt_xent",
    "proxy_nca",
    "margin",
    "margin_per_class",
    "normalized_softmax",
    "cosface",
    "arcface",
    "fast_ap",
    "snr_contrastive",
    "multi_similarity",
    "multi_similarity_miner",
    "soft_triple",
}
FURTHER = {
    "stop_gradient_softmax",
    "warped_softmax",
    "heated_up_softmax",
    "heated_up_softmax_bn",
    "grad_ml",
    "proxy_nca_plus_plus",
    "hist",
    "proxy_anchor",
}
#: The rows of Appendix D's tables that PML or we have; HIST has none for SOP.
TABLES = {
    "cub200": ["contrastive", "cosface", "arcface", "hist"],
    "cars196": ["multi_similarity", "cosface", "soft_triple", "hist"],
    "sop": ["proxy_nca", "normalized_softmax", "arcface"],
}
IN_ALL_TABLES = ["proxy_anchor", "proxy_nca_plus_plus", "warped_softmax"]


def names(experiment: str) -> list[str]:
    return [method.name for method in shipped(experiment).methods]


@pytest.mark.parametrize("name", FILES)
def test_every_experiment_loads_and_is_plain_data(name: str) -> None:
    loaded = shipped(name)
    assert loaded.name == name.rpartition("/")[2]
    again = compose(parse_yaml(dump_yaml(loaded.plain(), compact=True)))
    assert again == loaded
    assert again.plain() == parse_yaml(dump_yaml(loaded.plain())) == loaded.plain()
    for method in loaded.methods:
        assert search_space(method, loaded.protocol), method.name


@pytest.mark.parametrize("name", FILES)
def test_every_experiment_says_how_to_run_it(name: str) -> None:
    comments = [line for line in FILES[name].read_text().splitlines() if line.startswith("#")]
    assert any(f"reality-check run {name}" in line for line in comments)


@pytest.mark.parametrize("name", MLRC)
def test_the_reality_check_compares_its_fourteen_losses_and_eight_others(name: str) -> None:
    found = names(name)
    assert set(found) == PUBLISHED | FURTHER
    assert len(found) == 22


def test_the_second_study_has_the_fourteen_losses() -> None:
    assert set(names("cub200_mlrc_batch256")) == PUBLISHED


@pytest.mark.parametrize("name", APPENDIX_D)
def test_appendix_d_compares_the_losses_of_its_table_and_all_of_ours(name: str) -> None:
    data = name.removesuffix("_appendix_d")
    table = TABLES["sop" if data == "in_shop" else data]
    assert set(names(name)) == {*table, *IN_ALL_TABLES, *FURTHER}


@pytest.mark.parametrize("name", [*MLRC, *APPENDIX_D, "cub200_mlrc_batch256"])
def test_published_experiments_follow_their_protocol_to_the_letter(name: str) -> None:
    """In-Shop was in neither study, and has an official split of its own.

    One of our methods needs a neck, which the report says of it.
    """
    found = {found.topic: found.text for found in find_deviations(shipped(name), [], True)}
    in_shop = {"data set", "split"} if name.startswith("in_shop") else set()
    if "heated_up_softmax_bn" in names(name):
        models = found.pop("models")
        assert "network: heated_up_softmax_bn has neck heated_up_softmax. " in models
    assert found.keys() - {"phases"} == in_shop


def test_sop_halves_its_classes_and_in_shop_has_its_official_ones() -> None:
    for name in (*MLRC, *APPENDIX_D):
        expected = "official" if name.startswith("in_shop") else "half"
        assert shipped(name).protocol.split.test_classes == expected, name


@pytest.mark.parametrize("name", ["omniglot_official", "caltech101"])
def test_experiments_on_real_data_compare_six_losses_or_more_and_say_what_they_are_not(
    name: str,
) -> None:
    experiment = shipped(name)
    assert len(experiment.methods) >= 6
    assert "not the protocol" in experiment.protocol.note
    official = experiment.protocol.split.test_classes == "official"
    assert official == (name == "omniglot_official")
    found = {found.topic for found in find_deviations(experiment, [], True)}
    assert {"protocol", "model", "data set", "search", "training"} <= found


def test_show_begins_with_what_an_experiment_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "in_shop_appendix_d"]) == 0
    head = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    assert head == [
        "# in_shop_appendix_d: 11 methods on in_shop, model bn_inception_appendix_d, protocol "
        "appendix_d_in_shop",
        "# 2,750 trainings, each at most 1000 epochs of 100 batches of 32",
        "# a method: 50 trials and 10 reproductions on 4 folds, 10 networks on all classes "
        "(complete)",
        "# differs from appendix_d_sop in: data set, split",
    ]
    assert main(["show", "cub200_mlrc"]) == 0
    assert "# no deviations from mlrc\n" in capsys.readouterr().out
