from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.refusals import refused

from reality_check.config import (
    Experiment,
    Range,
    compose,
    config_files,
    differing_keys,
    load_experiment,
    named_protocol,
)
from reality_check.config.differences import value_at
from reality_check.config.layers import merge
from reality_check.config.named import find_experiment, named_method
from reality_check.config.values import find_searched
from reality_check.config.yaml_text import parse_yaml, read_yaml
from reality_check.training.methods import search_space
from reality_check.utils.config_files import configs_root, shipped_files
from reality_check.utils.errors import UsageError

VALID: dict[str, Any] = {
    "name": "mine",
    "dataset": "glyphs",
    "model": "conv4",
    "protocol": "quick_one_search",
    "methods": ["contrastive"],
}
METHODS = sorted(shipped_files("methods"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder holds no configs, so that only the shipped ones are found."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def error_of(raw: dict[str, Any], overrides: list[str]) -> str:
    with pytest.raises(UsageError) as caught:
        compose(raw, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# -- files -----------------------------------------------------------------------------------


def test_a_missing_file_names_what_exists() -> None:
    with pytest.raises(UsageError, match=r"no file 'quickstat'.*caltech101.*mean 'quickstart'"):
        load_experiment("quickstat")
    with pytest.raises(UsageError, match="is a folder"):
        load_experiment(".")


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("name: a\nmodel: [conv4\nseed: 0\n", 3, "expected"),
        ("name: a\nmodel: conv4\n  seed: 0\n", 3, "mapping values"),
        ("name: a\n\tseed: 0\n", 2, ""),
        ("name: a\nseed: 0\nseed: 1\n", 3, "'seed' is given twice"),
        ("name: a\nmodel:\n  trunk: a\n  trunk: b\n", 4, "'trunk' is given twice"),
        ("name: !!python/object/apply:os.system [ls]\n", 1, "constructor"),
        ("name: a\nyes: 1\n'yes': 2\n", 3, "'yes' is given twice"),
        ("name: a\n<<: {seed: 0}\n<<: {seed: 1}\n", 3, "'<<' is given twice"),
    ],
)
def test_broken_yaml_names_file_and_line(
    tmp_path: Path, text: str, line: int, problem: str
) -> None:
    path = write(tmp_path / "broken.yaml", text)
    with refused("broken.yaml", f"line {line}", problem):
        load_experiment(path)


def test_yaml_that_is_no_mapping_no_text_or_endless_is_refused(tmp_path: Path) -> None:
    for number, content in enumerate([b"- a\n- b\n", b"", b"\xff\xfe\x00", b"a: &a {b: *a}\n"]):
        path = tmp_path / f"{number}.yaml"
        path.write_bytes(content)
        with pytest.raises(UsageError, match=path.name):
            load_experiment(path)


def test_the_name_of_an_experiment_is_that_of_its_file(tmp_path: Path) -> None:
    text = "dataset: glyphs\nmodel: conv4\nprotocol: quick_one_search\nmethods: [contrastive]\n"
    path = write(tmp_path / "my_comparison.yaml", text)
    assert load_experiment(path).name == "my_comparison"
    assert load_experiment(str(path), ["name=other"]).name == "other"
    assert find_experiment("quickstart") == configs_root() / "experiments" / "quickstart.yaml"


@pytest.mark.parametrize("text", ["1e-4", "1E-4", "1.e-4", "1.0e-4", "0.0001"])
def test_floats_are_read_as_in_yaml_1_2(text: str) -> None:
    value = parse_yaml(f"lr: {text}")["lr"]
    assert isinstance(value, float)
    assert value == 1e-4


@pytest.mark.parametrize("text", ["1e4", "1e+4", "+1e4"])
def test_large_floats_need_no_sign(text: str) -> None:
    assert parse_yaml(text) == 1e4
    assert parse_yaml(f"'{text}'") == text


# -- bases -----------------------------------------------------------------------------------


def test_a_base_is_merged_but_ranges_and_objects_are_replaced_as_a_whole() -> None:
    base = {
        "a": {"low": 1, "high": 2, "log": True},
        "b": {"class": "LpDistance", "p": 1},
        "c": {"x": 1, "y": {"z": 2}},
        "d": [1, 2],
    }
    own = {
        "a": {"low": 3, "high": 4},
        "b": {"class": "CosineSimilarity"},
        "c": {"y": {"w": 3}},
        "d": [3],
    }
    assert merge(base, own) == {
        "a": {"low": 3, "high": 4},
        "b": {"class": "CosineSimilarity"},
        "c": {"x": 1, "y": {"z": 2, "w": 3}},
        "d": [3],
    }
    assert base["c"] == {"x": 1, "y": {"z": 2}}, "merging must not change the base"


def test_a_searched_value_of_the_base_may_be_fixed_and_the_reverse() -> None:
    entry = {
        "base": "normalized_softmax",
        "name": "mine",
        "arguments": {"temperature": 0.1},
        "learning_rates": {"trunk": {"low": 1e-5, "high": 1e-3, "log": True}},
    }
    method = compose({**VALID, "methods": [entry]}).methods[0]
    assert method.arguments == {"temperature": 0.1}
    assert method.learning_rates.trunk == Range(low=1e-5, high=1e-3, log=True)
    assert method.learning_rates.loss == Range(low=1e-6, high=1, log=True)


def test_half_a_range_over_a_base_is_refused_instead_of_mixed() -> None:
    entry = {"base": "normalized_softmax", "arguments": {"temperature": {"low": 0.1}}}
    assert "'high' is missing" in error_of({**VALID, "methods": [entry]}, [])


def test_the_users_configs_win_and_may_start_from_the_shipped_file(elsewhere: Path) -> None:
    shipped = compose(VALID).methods[0]
    write(
        elsewhere / "configs/methods/contrastive.yaml",
        "base: contrastive\narguments: {pos_margin: 0}\n",
    )
    own = compose(VALID).methods[0]
    assert own.name == "contrastive"
    assert own.arguments["pos_margin"] == 0
    assert own.arguments["neg_margin"] == shipped.arguments["neg_margin"]
    assert named_method("contrastive") == shipped, (
        "the shipped method is what deviations compare to"
    )


def test_no_file_of_the_user_replaces_the_reference_protocol(elsewhere: Path) -> None:
    """Else a protocol with three trials could call itself mlrc and show no deviation."""
    shipped = named_protocol("mlrc")
    text = "base: mlrc\nsearch: {trials: 3, sampler: random}\n"
    write(elsewhere / "configs/protocols/mlrc.yaml", text)
    assert compose({**VALID, "protocol": "mlrc"}).protocol.search.trials == 3
    assert named_protocol("mlrc") == shipped
    assert named_protocol("appendix_d").search.trials == 50


def test_bases_chain_through_files_beside_the_experiment(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    write(folder / "methods/first.yaml", "base: contrastive\nsamples_per_class: 2\n")
    write(folder / "methods/second.yaml", "base: first\nnote: x\n")
    write(folder / "losses/third.yaml", "base: fourth.yaml\n")
    write(folder / "losses/fourth.yaml", "base: second\nnormalize_embeddings: false\n")
    text = "dataset: glyphs\nmodel: conv4\nprotocol: quick\nmethods: [second, losses/third.yaml]\n"
    experiment = load_experiment(write(folder / "experiment.yaml", text))
    second, third = experiment.methods
    assert (second.name, second.samples_per_class, second.note) == ("second", 2, "x")
    assert (third.name, third.samples_per_class, third.normalize_embeddings) == ("third", 2, False)


def test_a_circle_of_bases_is_refused(elsewhere: Path) -> None:
    write(elsewhere / "configs/methods/one.yaml", "base: two\n")
    write(elsewhere / "configs/methods/two.yaml", "base: one\n")
    write(elsewhere / "configs/methods/self.yaml", "base: self\n")
    assert "one -> two -> one" in error_of({**VALID, "methods": ["one"]}, [])
    assert "self -> self" in error_of({**VALID, "methods": ["self"]}, [])


def test_composing_does_not_change_the_given_data() -> None:
    raw = {**VALID, "protocol": {"base": "quick_one_search"}, "methods": [{"base": "contrastive"}]}
    before = repr(raw)
    compose(raw, ["protocol.reproductions=2", "methods.contrastive.note=x"])
    assert repr(raw) == before


# -- overrides -------------------------------------------------------------------------------


def test_overrides_reach_every_level() -> None:
    experiment = compose(
        VALID,
        [
            "seed=7",
            "protocol=mlrc",
            "protocol.search.trials=3",
            "protocol.training.patience=null",
            "protocol.training.optimizers.trunk.lr=1e-4",
            "dataset.classes=40",
            "methods=[contrastive, normalized_softmax]",
            "methods.contrastive.arguments.pos_margin=0.5",
            "methods.contrastive.arguments.neg_margin.low=0.1",
            "methods.1.samples_per_class=2",
            "methods.contrastive.note=a=b",
        ],
    )
    contrastive, softmax = experiment.methods
    assert experiment.seed == 7
    assert experiment.protocol.name == "mlrc"
    assert experiment.protocol.search.trials == 3
    assert experiment.protocol.training.patience is None
    assert experiment.protocol.training.optimizers.trunk.lr == 1e-4
    assert experiment.dataset.classes == 40  # type: ignore[union-attr]
    assert contrastive.arguments == {"pos_margin": 0.5, "neg_margin": Range(low=0.1, high=2)}
    assert contrastive.note == "a=b"
    assert softmax.samples_per_class == 2


def test_an_override_changes_one_optimiser_though_the_yaml_shares_one_anchor() -> None:
    optimizers = compose(
        {**VALID, "protocol": "mlrc"}, ["protocol.training.optimizers.trunk.lr=0.5"]
    ).protocol.training.optimizers
    assert [optimizers.trunk.lr, optimizers.embedder.lr, optimizers.loss.lr] == [0.5, 1e-6, 1e-6]


def test_data_that_shares_a_mapping_is_not_changed_in_two_places() -> None:
    shared = {"name": "Adam", "lr": 0.1}
    optimizers = {"trunk": shared, "embedder": shared, "loss": shared}
    protocol = {"base": "quick_one_search", "training": {"optimizers": optimizers}}
    found = compose(
        {**VALID, "protocol": protocol}, ["protocol.training.optimizers.loss.lr=2"]
    ).protocol.training.optimizers
    assert [found.trunk.lr, found.embedder.lr, found.loss.lr] == [0.1, 0.1, 2]


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("protocol.search.trials", ["key.path=value", "protocol.search.trials=8"]),
        ("=3", ["key.path=value"]),
        ("a..b=3", ["key.path=value"]),
        ("seed=[1", ["'seed=[1'", "YAML"]),
        ("sed=1", ["'sed'", "mean 'seed'?"]),
        ("protocol.serch.trials=3", ["'protocol.serch'", "mean 'search'?"]),
        ("protocol.search.trails=3", ["'protocol.search.trails'", "mean 'trials'?"]),
        ("protocol.reproductions.x=3", ["'protocol.reproductions'", "single value"]),
        ("seed.x=3", ["seed", "integer"]),
        ("methods.contrastve.note=x", ["'contrastve'", "mean 'contrastive'?"]),
        ("methods.contrastive=3", ["name a key of the method"]),
        ("methods.contrastive.sample_per_class=2", ["mean 'samples_per_class'?"]),
        ("methods.contrastive.arguments.pos_margin.low=5", ["pos_margin", "low < high"]),
        ("protocol.categories.0=complete", ["protocol.categories is a list", "=[...]"]),
        ("protocol.categories.0.x=complete", ["protocol.categories is a list", "=[...]"]),
        ("protocol.search.trials=many", ["protocol.search.trials", "'many'"]),
        ("dataset=glyph", ["mean 'glyphs'?"]),
    ],
)
def test_a_wrong_override_is_one_sentence(override: str, parts: list[str]) -> None:
    message = error_of(VALID, [override])
    for part in parts:
        assert part in message


# -- comparing -------------------------------------------------------------------------------


def test_differing_keys_are_dotted_and_methods_go_by_name() -> None:
    one = compose(VALID).plain()
    other = compose(
        VALID, ["seed=1", "protocol.search.trials=3", "methods.contrastive.arguments.pos_margin=1"]
    ).plain()
    assert list(differing_keys(one, one)) == []
    assert sorted(differing_keys(one, other)) == [
        "methods.contrastive.arguments.pos_margin",
        "protocol.search.trials",
        "seed",
    ]


def test_an_added_method_and_an_absent_key_differ() -> None:
    one = compose(VALID).plain()
    two = compose(VALID, ["methods=[contrastive, triplet_margin]"]).plain()
    assert list(differing_keys(one, two)) == ["methods"]
    assert list(differing_keys({"a": None}, {})) == ["a"]


def test_a_differing_key_leads_to_its_value() -> None:
    config = {"a": {"b": None}, "methods": [{"name": "one", "c": 1}, {"c": 2}], "d": [3, 4]}
    assert value_at(config, "a.b", "absent") is None
    assert value_at(config, "methods.one.c") == 1
    assert value_at(config, "methods.1.c") == 2  # without a name, by its place
    assert value_at(config, "d.1") == 4
    for key in ("a.x", "a.b.c", "methods.two.c", "methods.0.c", "d.2"):
        assert value_at(config, key, "absent") == "absent"
    other = {"a": {"b": 0}, "methods": [{"name": "one", "c": 5}, {"c": 6}], "d": [3]}
    keys = list(differing_keys(config, other))
    assert [value_at(other, key) for key in keys] == [0, [3], 5, 6]


def test_config_files_name_nested_files_by_their_path() -> None:
    assert "quick/contrastive" in config_files("methods")


def test_every_searched_value_has_a_name_of_its_own() -> None:
    for name in METHODS:
        method = compose({**VALID, "methods": [name]}).methods[0]
        paths = [path for path, _ in find_searched(method.arguments, "arguments")]
        assert len(set(paths)) == len(paths)
        assert set(paths) <= set(search_space(method, named_protocol("quick")))


def test_an_experiment_finds_its_methods_by_name() -> None:
    experiment = compose({**VALID, "methods": ["contrastive", "triplet_margin"]})
    assert isinstance(experiment, Experiment)
    assert experiment.method("triplet_margin") is experiment.methods[1]


@pytest.mark.parametrize("name", ["logs", "Figures", "report.html", "Slurm.json", "NUL.x", "con"])
def test_a_method_cannot_take_a_name_of_the_output_folder(name: str) -> None:
    raw = VALID | {"methods": [{"base": "contrastive", "name": name}]}
    assert f"a method cannot be named {name.lower()!r}" in error_of(raw, [])


def test_a_yaml_that_is_not_there_is_looked_for_among_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"nor another YAML in .*; reality-check init writes one"):
        find_experiment("experimnt.yaml")
    with pytest.raises(UsageError, match="and no folder 'no/such'"):
        find_experiment("no/such/experiment.yaml")
    (tmp_path / "experiment.yaml").write_text("")
    with pytest.raises(UsageError) as caught:
        find_experiment("experimnt.yaml")
    assert str(caught.value) == (
        "There is no file 'experimnt.yaml', but experiment.yaml. Did you mean 'experiment.yaml'?"
    )


def test_shipped_files_are_read_as_those_of_users_are() -> None:
    for path in configs_root().rglob("*.yaml"):
        assert read_yaml(path) == parse_yaml(path.read_text("utf-8")), path


def test_what_is_read_of_a_shipped_file_is_the_readers_own() -> None:
    path = configs_root() / "protocols" / "quick.yaml"
    read_yaml(path)["training"].clear()
    assert read_yaml(path)["training"]
