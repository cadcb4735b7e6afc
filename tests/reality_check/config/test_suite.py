"""Suites: which experiments a YAML with several data sets makes, and what it may not mix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.refusals import refused

from reality_check.config import Experiment, load_experiment
from reality_check.config.layers import merge
from reality_check.config.suite import Suite, check_alike, load, load_suite
from reality_check.config.yaml_text import dump_yaml
from reality_check.utils.errors import UsageError

#: What holds on every data set.
SHARED: dict[str, Any] = {
    "model": "conv4",
    "protocol": "quick",
    "methods": ["quick/contrastive", "quick/arcface"],
}
FEW: dict[str, Any] = {"base": "glyphs", "name": "few", "dataset": {"classes": 40}}

Write = Callable[..., str]


@pytest.fixture(autouse=True)
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """A function that writes a suite into the current folder, where no other config is."""
    monkeypatch.chdir(tmp_path)

    def write(*entries: Any, file: str = "some.yaml", **changes: Any) -> str:
        data = {"suite": list(entries), **SHARED, **changes}
        Path(file).write_text(dump_yaml({key: v for key, v in data.items() if v is not None}))
        return file

    return write


def classes(member: Experiment) -> Any:
    return member.plain()["dataset"]["classes"]


def data_sets(suite: Suite) -> list[str]:
    return [member.dataset.name for member in suite.members.values()]


# -- what an entry stands for --------------------------------------------------------------------


def test_entries_are_data_sets_that_share_all_other_keys(write: Write) -> None:
    suite = load_suite(write("mnist", "glyphs", device="cpu"))
    assert suite.name == "some"
    assert list(suite.members) == data_sets(suite) == ["mnist", "glyphs"]
    alone = write("mnist", suite=None, file="alone.yaml", dataset="mnist", name="x", device="cpu")
    one, other = load_experiment(alone), suite.members["mnist"]
    assert other == one.model_copy(update={"name": "mnist", "seed": other.seed})


def test_the_suite_may_be_named(write: Write) -> None:
    assert load_suite(write("mnist", "glyphs", name="both")).name == "both"


def test_an_entry_may_be_an_experiment_whose_own_keys_lie_below_those_of_the_suite(
    write: Write,
) -> None:
    """The shipped one has a model, a protocol and other methods."""
    suite = load_suite(write("quickstart", {"base": "mnist", "model": "conv4"}, model=None))
    first = suite.members["glyphs"]
    assert [method.name for method in first.methods] == ["contrastive", "arcface"]
    assert first.model.trunk == load_experiment("quickstart").model.trunk


def test_an_entry_may_be_a_file_beside_that_of_the_suite(tmp_path: Path, write: Write) -> None:
    (tmp_path / "there").mkdir()
    own = {"name": "own", "dataset": FEW["dataset"] | {"base": "glyphs"}, **SHARED, "claims": []}
    (tmp_path / "there" / "own.yaml").write_text(dump_yaml(own | {"device": "cpu"}))
    suite = load_suite(write("mnist", "own.yaml", file="there/some.yaml"))
    assert classes(suite.members["glyphs"]) == 40
    assert {name: m.device for name, m in suite.members.items()} == {
        "mnist": "auto",
        "glyphs": "cpu",
    }


def test_a_name_that_is_a_data_set_and_an_experiment_is_the_data_set(write: Write) -> None:
    methods = {method.name for method in load_experiment("omniglot").methods}
    assert len(methods) > 2
    with pytest.raises(UsageError, match=r"omniglot: .* the key 'methods' is missing"):
        load_suite(write("omniglot", "mnist", methods=None))


def test_a_mapping_changes_one_data_set(write: Write) -> None:
    training = {"training": {"batch_size": 16}}
    suite = load_suite(write({**FEW, "protocol": training}, "glyphs"))
    few, all_of_them = suite.members.values()
    assert list(suite.members) == [few.name, all_of_them.name] == ["few", "glyphs"]
    assert (classes(few), few.protocol.training.batch_size) == (40, 16)
    assert few.protocol.search == all_of_them.protocol.search, "the other keys are kept"
    assert all_of_them.protocol.training.batch_size == 32
    assert classes(all_of_them) != 40


def test_overrides_are_for_all_data_sets_or_for_the_one_that_they_name(write: Write) -> None:
    file = write(FEW, "glyphs")
    suite = load_suite(
        file, ["protocol.search.trials=12", "few.device=cpu", "few.dataset.classes=20"]
    )
    few, others = suite.members["few"], suite.members["glyphs"]
    assert few.protocol.search.trials == others.protocol.search.trials == 12
    assert (few.device, others.device) == ("cpu", "auto")
    assert classes(few) == 20 != classes(others)
    with pytest.raises(UsageError, match="fev"):
        load_suite(file, ["fev.device=cpu"])


def test_what_holds_for_one_wins_over_what_holds_for_all(write: Write) -> None:
    for overrides in (["few.device=cpu", "device=cuda"], ["device=cuda", "few.device=cpu"]):
        suite = load_suite(write(FEW, "glyphs"), overrides)
        assert {name: m.device for name, m in suite.members.items()} == {
            "few": "cpu",
            "glyphs": "cuda",
        }


# -- seeds ---------------------------------------------------------------------------------------


def seeds(file: str, *overrides: str) -> dict[str, int]:
    return {name: member.seed for name, member in load_suite(file, overrides).members.items()}


def test_data_sets_share_no_seed(write: Write) -> None:
    found = seeds(write("mnist", "glyphs", FEW, "fashion_mnist"))
    assert len({*found.values()}) == 4
    assert not {0, 1} & {*found.values()}, "nor with an experiment of its own"


def test_a_seed_depends_on_the_suites_and_the_name_alone(write: Write) -> None:
    found = seeds(write("mnist", "glyphs", "fashion_mnist"))
    again = seeds(write("fashion_mnist", FEW, "mnist", name="another"))
    assert {name: found[name] for name in ("mnist", "fashion_mnist")} == {
        name: again[name] for name in ("mnist", "fashion_mnist")
    }
    other = seeds(write("mnist", "glyphs", seed=1))
    assert not {*other.values()} & {*found.values()}
    assert other == seeds(write("mnist", "glyphs"), "seed=1")


# -- a suite or an experiment --------------------------------------------------------------------


def test_a_yaml_holds_either(write: Write) -> None:
    file = write("mnist", "glyphs")
    assert load(file, ["device=cpu"]) == load_suite(file, ["device=cpu"])
    one = load("quickstart", ["device=cpu"])
    assert isinstance(one, Experiment)
    assert one == load_experiment("quickstart", ["device=cpu"])


def test_a_suite_is_no_experiment(write: Write) -> None:
    with refused("some.yaml is a suite of several data sets", "rc.load_suite"):
        load_experiment(write("mnist", "glyphs"))


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [["mnist"], [], "mnist", None, {"mnist": {}}])
def test_a_suite_lists_at_least_two_data_sets(write: Write, entries: Any) -> None:
    file = write(suite=entries)
    if entries is None:
        Path(file).write_text(f"suite:\n{dump_yaml(SHARED)}")
    with refused("suite must list two data sets or more", repr(entries), "write dataset: NAME"):
        load_suite(file)


def test_an_experiment_is_no_suite() -> None:
    with refused("quickstart: suite must list", "got None"):
        load_suite("quickstart")


@pytest.mark.parametrize("entry", [{"dataset": "glyphs"}, {"base": 3}, 3, ["glyphs"], None])
def test_an_entry_without_a_name(write: Write, entry: Any) -> None:
    with refused("some.yaml: an entry of suite must be the name", repr(entry)):
        load_suite(write("mnist", entry))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dataset", "glyphs"),
        ("claims", []),
        ("published_results", {}),
        ("variant", "a"),
        ("variants", {"a": {}}),
    ],
)
def test_keys_of_one_data_set_do_not_hold_on_all(write: Write, key: str, value: Any) -> None:
    with refused(f"some.yaml: {key} belongs to one data set"):
        load_suite(write("mnist", "glyphs", **{key: value}))


@pytest.mark.parametrize(
    "entries",
    [("glyphs", "mnist", "glyphs"), ("quickstart", "glyphs"), (FEW, {**FEW, "name": "FEW"})],
    ids=["twice", "an experiment and its data set", "one folder where case does not count"],
)
def test_a_name_is_not_there_twice(write: Write, entries: tuple[Any, ...]) -> None:
    with refused("twice, which would count twice", "give it another name"):
        load_suite(write(*entries))


def test_one_data_set_is_not_there_under_two_names(write: Write) -> None:
    with refused("few and more have the same data set, which would count twice"):
        load_suite(write("mnist", FEW, {**FEW, "name": "more"}))
    with refused("glyphs and others have the same data set, which would count twice"):
        load_suite(write("glyphs", {"base": "glyphs", "dataset": {"name": "others"}}))


def test_a_name_that_the_folder_needs_itself(write: Write) -> None:
    with refused("the output folder keeps the name 'logs' for itself"):
        load_suite(write("mnist", {**FEW, "name": "logs"}))
    with refused("name may hold only letters"):
        load_suite(write("mnist", {**FEW, "name": "../few"}))


def test_a_suite_of_suites(write: Write) -> None:
    write("mnist", "glyphs", file="inner.yaml")
    with refused("inner.yaml is a suite itself"):
        load_suite(write("fashion_mnist", "inner.yaml"))


def test_all_unknown_names_are_reported_at_once(write: Write) -> None:
    with pytest.raises(UsageError) as caught:
        load_suite(write("mnits", "glyphs", "glyhps"))
    first, second = str(caught.value).splitlines()
    assert first.startswith("mnits: ")
    assert "no dataset named 'mnits'" in first
    assert second.startswith("glyhps: ")


#: What is changed on one of two data sets, and what is said of it.
DIFFERENT: list[tuple[dict[str, Any], str]] = [
    ({"methods": ["quick/contrastive"]}, "methods is arcface, contrastive on mnist"),
    ({"methods": ["quick/contrastive", "quick/nt_xent"]}, "methods is arcface, contrastive on"),
    ({"methods": {"contrastive": {"arguments": {"pos_margin": 0.25}}}}, "contrastive.arguments"),
    ({"methods": {"contrastive": {"miner": "pytorch_metric_learning.miners.HDCMiner"}}}, "miner"),
    ({"protocol": {"search": {"kind": "repeated", "trials": 5, "repeats": 3}}}, "search."),
    ({"protocol": {"search": {"kind": "one", "trials": 5}}}, "search."),
    ({"protocol": {"search": {"budget": 6}}}, "search.budget is 5 on mnist and 6 on few"),
    ({"protocol": {"search": {"retrain": "best"}}}, "search.retrain is none on mnist and best or"),
    ({"protocol": {"categories": ["aggregate"]}}, "protocol.categories is ['aggregate', 'ensem"),
    ({"protocol": {"selects_by": "recall_at_2"}}, "protocol.selects_by is mean_average_precis"),
]


@pytest.mark.parametrize(("change", "said"), DIFFERENT, ids=[said for _, said in DIFFERENT])
def test_one_verdict_is_about_one_thing(write: Write, change: dict[str, Any], said: str) -> None:
    assert len(load_suite(write("mnist", FEW)).members) == 2
    with refused(said, "on mnist and", "One verdict over data sets needs the same methods"):
        load_suite(write("mnist", {**FEW, **change}))


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"base": "conv4", "arguments": {"width": 8}}},
        {"methods": {"contrastive": {"training": {"batch_size": 16}}}},
        {"protocol": {"search": {"trials": 30}}},  # all subsets of which are of the same size
        {"protocol": {"split": {"folds": 3}}},
    ],
    ids=str,
)
def test_networks_trainings_and_splits_may_differ(write: Write, change: dict[str, Any]) -> None:
    suite = load_suite(write("mnist", {**FEW, **change}))
    assert suite.members["few"] != load_suite(write("mnist", FEW)).members["few"]


# -- runs that are finished ----------------------------------------------------------------------


def test_finished_runs_are_alike_in_their_data_and_code(write: Write) -> None:
    """What :func:`check_alike` is given by folders: fingerprints tell what is the same."""
    own, loss = "a.Mine", "pytorch_metric_learning.losses.ArcFaceLoss"
    plain = {n: m.plain() for n, m in load_suite(write("mnist", "glyphs")).members.items()}
    one, other = (
        merge(plain[name], {"code": {"dataset": name, loss: "v1", own: name}}) for name in plain
    )
    check_alike({"a": one, "b": other})  # no method uses a.Mine
    with refused("the code of", "ArcFaceLoss is not the same on a and on b"):
        check_alike({"a": one, "b": merge(other, {"code": {loss: "v2"}})})
    with refused("a and b have the same data set"):
        check_alike({"a": one, "b": merge(other, {"code": {"dataset": "mnist"}})})
    # The same keys, but the file is another one.
    check_alike({"a": one, "b": merge(one, {"code": {"dataset": "other"}})})


def test_methods_that_only_have_names_are_compared_by_these() -> None:
    settings = {"a": {"dataset": {"name": "a"}}, "b": {"dataset": {"name": "b", "path": "b"}}}
    check_alike(settings, {"a": ["x", "y"], "b": ["x", "y"]})
    with refused("methods is x, y on a and x, z on b"):
        check_alike(settings, {"a": ["x", "y"], "b": ["x", "z"]})


def test_order_and_notes_of_methods_may_differ(write: Write) -> None:
    entry = {**FEW, "methods": [{"base": "quick/arcface", "note": "second"}, "quick/contrastive"]}
    assert len(load_suite(write("mnist", entry)).members) == 2


@pytest.mark.parametrize(
    ("overrides", "said"),
    [(["mnits.seed=1"], "begins neither with a key"), (["name=../x"], "name")],
)
def test_overrides_that_fit_nothing_are_refused(
    write: Write, overrides: list[str], said: str
) -> None:
    with refused(said):
        load_suite(write("mnist", FEW), overrides)


def test_a_data_set_is_addressed_by_its_own_name_too(write: Write) -> None:
    path = write({"base": "quickstart"}, "mnist")
    suite = load_suite(path, ["glyphs.dataset.classes=60", "name=other"])
    assert suite.members["glyphs"].dataset.classes == 60  # type: ignore[union-attr]
    assert suite.name == "other"
