"""A method of one's own against packed results, which are not trained again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.in_process import visiting
from support.paths import TINY
from support.recorded_runs import CODE, OVERRIDES, MadeUpRunner, work

import reality_check as rc
from reality_check.api import pack
from reality_check.config import compose, load_experiment
from reality_check.launch import check as checks
from reality_check.launch.open_folder import open_folder
from reality_check.registry.packed_methods import check_packed, packs_of
from reality_check.report.summary import Summary
from reality_check.report.tables import other_tables
from reality_check.studies.growth import read_steps
from reality_check.studies.plan import Step
from reality_check.utils.errors import UsageError


@pytest.fixture(scope="module")
def theirs(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(runs / "one", tmp_path_factory.mktemp("packs") / "theirs.pack")


def loaded(methods: str, *more: str) -> Any:
    return load_experiment(TINY, [*OVERRIDES, *more, f"methods=[{methods}]"])


def run(experiment: Any, out: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUpRunner:
    """What ``reality-check run`` does, with made-up results and without a report."""
    monkeypatch.setattr(checks, "fingerprints", lambda experiment, dataset: dict(CODE))
    checked = checks.check(experiment, trained_here=False, steps=read_steps(out))
    with open_folder(checked, out) as recorded:
        return work(recorded.experiment, out)


def test_only_the_own_method_is_trained(
    runs: Path, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, out = loaded(f"{{from: {theirs}}}, quick/contrastive"), tmp_path / "out"
    assert {*run(experiment, out, monkeypatch).done} == {"contrastive", "baselines"}
    both, found = rc.load_results(runs / "both"), rc.load_results(out)
    assert found.records(baselines=True) == both.records(baselines=True)
    assert found.trials() == both.trials()
    (said,) = [one.text for one in found.deviations if one.topic == "packed results"]
    assert said.startswith("Not trained in this run, but taken from the pack of tiny (")
    assert said.endswith("protocol and seed: normalized_softmax.")
    assert not [one for one in both.deviations if one.topic == "packed results"]
    # The same command continues, also where the pack lies elsewhere by now; this folder's own pack
    # has all methods.
    moved = shutil.copy(theirs, tmp_path / "moved.pack")
    again = loaded(f"{{from: {moved}}}, quick/contrastive")
    assert not run(again, out, monkeypatch).done
    assert rc.load_results(pack(out)).records() == both.records()
    # Nothing is mixed with another pack.
    other = pack(runs / "another_seed", tmp_path / "other.pack")
    with pytest.raises(UsageError, match="seed is 0 in this experiment and 1 in"):
        run(loaded(f"{{from: {other}}}, quick/contrastive"), out, monkeypatch)


def test_a_packed_method_without_an_own_metric_has_an_empty_cell(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_metrics.py").write_text("def spread(embeddings, labels):\n    return 1.0\n")
    own, out = "protocol.final_metrics=[my_metrics.spread]", tmp_path / "out"
    with visiting(tmp_path):
        both = loaded(f"{{from: {theirs}}}, quick/contrastive", own)
        assert {*run(both, out, monkeypatch).done} == {"contrastive", "baselines"}
        assert not run(both, out, monkeypatch).done
    for results in (rc.load_results(out), rc.load_results(pack(out))):
        measured = {row.method for row in results.rows if row.metric == "my_metrics.spread"}
        assert measured == {"contrastive"}
        table = other_tables(Summary(results))[0]
        intervals = {row.method: row.cells[0].interval for row in table.rows}
        assert intervals["normalized_softmax"] is None
        assert intervals["contrastive"] is not None


def test_nothing_of_a_pack_is_imported(theirs: Path) -> None:
    """Packed methods are neither built nor checked, so that their losses need not be here."""
    experiment = load_experiment(
        TINY, [*OVERRIDES, f"methods=[{{from: {theirs}}}, quick/contrastive]"]
    )
    plain = experiment.plain()
    plain["methods"][0]["loss"] = "nowhere.Loss"
    named = checks.all_classes(compose(plain).trained())
    assert "nowhere.Loss" not in named


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{from: %s, samples_per_class: 2}", "unknown key 'samples_per_class' beside from"),
        ("{from: %s, methods: [normalised_softmax]}", "has no method 'normalised_softmax'; it has"),
        ("{from: %s, methods: []}", "methods must be a list of names"),
        ("{from: nowhere.pack}", "there is no nowhere.pack"),
        ("{from: %s}, {from: %s}", "two methods are named 'normalized_softmax'"),
    ],
)
def test_what_cannot_be_taken_is_said(theirs: Path, entry: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        loaded(entry.replace("%s", str(theirs)))


def checked(experiment: Any, *steps: Step, **code: str) -> dict[str, str]:
    return check_packed(experiment, {**CODE, **code}, steps, packs_of(experiment))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("seed=3", "seed is 3 in this experiment and 0 in"),
        ("protocol.split.folds=3", "protocol.split.folds is 3 in this experiment and 2 in"),
        ("protocol.search.trials=5", "protocol.search.trials is 5 in this experiment and 2 in"),
        ("methods.normalized_softmax.samples_per_class=2", "samples_per_class is not as it was"),
        ("methods.normalized_softmax.packed.checksum=abc", "is not the pack that this experiment"),
    ],
)
def test_another_run_than_that_of_the_pack_is_refused(
    theirs: Path, change: str, words: str
) -> None:
    whole = f"methods=[{{from: {theirs}}}, quick/contrastive]"
    experiment = load_experiment(TINY, [*OVERRIDES, whole, change])
    with pytest.raises(UsageError, match=words):
        checked(experiment)


def test_images_and_own_code_must_be_those_of_the_pack(theirs: Path) -> None:
    experiment = loaded(f"{{from: {theirs}}}, quick/contrastive")
    assert checked(experiment, **{"mine.Loss": "1"}) == {**CODE, "mine.Loss": "1"}
    with pytest.raises(UsageError, match="the images are not the same"):
        checked(experiment, dataset="e")


def test_something_must_be_left_to_train(theirs: Path) -> None:
    with pytest.raises(UsageError, match="all methods come from packs, so there is nothing to"):
        packs_of(loaded(f"{{from: {theirs}}}"))


def test_numbers_of_reproductions_must_mean_the_same(theirs: Path) -> None:
    experiment = loaded(f"{{from: {theirs}}}, quick/contrastive")
    with pytest.raises(UsageError, match="grew in other steps"):
        checked(experiment, Step(0.0, {}, 2, 1))
