"""A campaign that is looked at while it grows: it ends once one method is above all others."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scipy import stats
from support import recorded_runs
from support.recorded_runs import MadeUpRunner

from reality_check.api import load_results
from reality_check.cli.status_view import show
from reality_check.cli.summary import print_summary
from reality_check.config.metrics import PRIMARY, Stage
from reality_check.config.schema import Experiment
from reality_check.launch import work_loop
from reality_check.launch.looks import decide
from reality_check.launch.work_loop import WorkLoop
from reality_check.registry.pack import open_pack
from reality_check.report.analysis import Analysis
from reality_check.report.combine import groups
from reality_check.report.pooling import Source
from reality_check.report.render.summary_json import summary_data
from reality_check.report.sections.verdict import headline, verdict_section
from reality_check.report.summary import Summary
from reality_check.results import ExperimentResults
from reality_check.statistics import Look, nominal_levels
from reality_check.studies.campaign import Campaign, read_campaign
from reality_check.studies.output_folder import check_same_experiment
from reality_check.studies.progress import status
from reality_check.utils.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

METHODS = "methods=[quick/normalized_softmax,quick/contrastive]"
BETTER = {"contrastive": 0.3}


def looked(*overrides: str) -> Experiment:
    return recorded_runs.experiment(
        METHODS,
        "protocol.search={repeats: 5, looks: [3, 4], trials: 1, sampler: random}",
        *overrides,
    )


def searches(folder: Path) -> dict[str, int]:
    """By method, how many searches were begun."""
    names = [name for name, *_ in trials(folder)]
    found = Counter(name.rpartition("/")[0] for name in set(names) if "/search" in name)
    return dict(found)


def trials(folder: Path) -> list[tuple[str, int, str]]:
    """Every attempt in the storage, also of studies that the campaign does not open."""
    import optuna

    storage = f"sqlite:///{folder / 'studies.db'}"
    return [
        (study.study_name, trial.user_attrs.get("trial_index", -1), trial.state.name)
        for study in optuna.study.get_all_study_summaries(storage=storage)
        for trial in optuna.load_study(study_name=study.study_name, storage=storage).trials
    ]


def samples(results: ExperimentResults) -> list[list[float]]:
    """The means of the searches of both methods, the better one first."""
    values = Summary(results).samples("aggregate", PRIMARY)
    return [list(values[name]) for name in ("contrastive", "normalized_softmax")]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that ended at the first look; only read."""
    folder = tmp_path_factory.mktemp("ended")
    recorded_runs.record(looked(), folder, above=BETTER)
    return folder


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same experiment without looks; only read."""
    folder = tmp_path_factory.mktemp("fixed")
    recorded_runs.record(looked("protocol.search.looks=null"), folder, above=BETTER)
    return folder


@pytest.fixture
def copied(ended: Path, tmp_path: Path) -> Path:
    """The same to be changed."""
    return shutil.copytree(ended, tmp_path / "copied")


def text_of(block: Any) -> str:
    return getattr(block, "text", "")


def test_a_campaign_ends_at_the_look_where_one_method_is_above_all_others(
    ended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert searches(ended) == {"contrastive": 3, "normalized_softmax": 3}
    results = load_results(ended)
    assert results.finished
    assert results.searches == 3
    summary = Summary(results)
    stopped = "Stopped at look 1 of 3, after 3 of 5 searches."
    assert stopped in headline(summary)
    assert "contrastive is above normalized_softmax" in headline(summary)
    (said,) = [d.text for d in results.deviations if d.topic == "looks"]
    assert said.startswith(stopped)
    assert "unfinished" not in {d.topic for d in results.deviations}
    assert any(d.topic == "search" and "looks 3 and 4 (mlrc: none)" in d.text
               for d in results.deviations)  # fmt: skip
    assert said in [text_of(block) for block in verdict_section(summary).blocks]
    looks = summary_data(summary, Analysis(summary))["looks"]
    (level,) = nominal_levels([3 / 5])
    assert looks == {"planned": [3, 4, 5], "searches": 3, "stopped_early": True, "level": level}
    print_summary(results)
    assert stopped in capsys.readouterr().out.splitlines()
    state = status(read_campaign(ended))
    assert state["state"] == "complete"
    assert state["looks"] == {"planned": [3, 4, 5], "searches": 3, "stopped_early": True}
    sentence = "Stopped at look 1 of 3, after 3 of 5 searches of each method."
    assert sentence in [str(part) for part in show(state).renderables]
    progress = summary.progress(results.methods[0], Stage.SEARCH)
    assert str(progress) == "3 of 3"


def test_intervals_and_p_values_are_those_of_the_level_that_is_spent(ended: Path) -> None:
    results = load_results(ended)
    one, other = samples(results)
    (level,) = nominal_levels([3 / 5])
    welch = stats.ttest_ind(one, other, equal_var=False)
    summary = Summary(results)
    (pair,) = summary.comparisons("aggregate")
    wide = welch.confidence_interval(1 - level)
    assert pair.difference.low == pytest.approx(wide.low)
    assert pair.difference.high == pytest.approx(wide.high)
    assert pair.adjusted_p == pytest.approx(Look((3 / 5,)).p_value(welch.pvalue))
    estimate = summary.estimates("aggregate")["contrastive"]
    student = stats.t.interval(1 - level, 2, estimate.mean, stats.sem(one))
    half = (student[1] - student[0]) / 2
    assert estimate.half_width == pytest.approx(2 * half)  # of one trial a search
    analysis = Analysis(summary)
    (paired,) = analysis.pairs["aggregate"]
    related = stats.ttest_rel(one, other)
    assert paired.adjusted_p == pytest.approx(Look((3 / 5,)).p_value(related.pvalue))
    assert paired.effect is paired.anywhere is None
    assert analysis.rankings == {}
    assert all(one.both is None for one in analysis.uncertainties.values())


def test_a_campaign_goes_on_where_no_method_is(tmp_path: Path) -> None:
    recorded_runs.record(looked(), tmp_path)
    assert searches(tmp_path) == {"contrastive": 5, "normalized_softmax": 5}
    campaign = read_campaign(tmp_path)
    for size in (3, 4):
        decision = campaign.noted(f"look at {size} searches")
        assert decision["stops"] is False
        assert decision["open"]
    results = load_results(tmp_path)
    assert results.finished
    summary = Summary(results)
    assert "Stopped" not in headline(summary)
    (said,) = [d.text for d in results.deviations if d.topic == "looks"]
    assert said.startswith("Looks after 3 and 4 of 5 searches were planned")
    level = nominal_levels([3 / 5, 4 / 5, 1])[-1]
    assert level < 0.05
    one, other = samples(results)
    (pair,) = summary.comparisons("aggregate")
    p_value = stats.ttest_ind(one, other, equal_var=False).pvalue
    assert pair.adjusted_p == pytest.approx(Look((3 / 5, 4 / 5, 1.0)).p_value(p_value))
    assert status(campaign)["looks"]["stopped_early"] is False


def test_without_looks_nothing_is_looked_at(fixed: Path) -> None:
    assert searches(fixed) == {"contrastive": 5, "normalized_softmax": 5}
    results = load_results(fixed)
    summary = Summary(results)
    assert results.searches is summary.look is None
    assert summary_data(summary, Analysis(summary))["looks"] is None
    assert status(read_campaign(fixed))["looks"] is None
    assert "looks" not in {d.topic for d in results.deviations}


@pytest.mark.parametrize(("above", "made"), [(BETTER, 3), ({}, 5)])
def test_workers_agree_and_nothing_is_made_twice(
    above: dict[str, float], made: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_loop, "PAUSES", (0.01, 0.05))
    of = looked()
    recorded_runs.record(of, tmp_path, until=1, above=above)
    problems: list[BaseException] = []

    def worker() -> None:
        try:
            WorkLoop(Campaign(of, tmp_path), MadeUpRunner(of, tmp_path, above)).run()  # type: ignore[arg-type]
        except BaseException as error:
            problems.append(error)

    workers = [threading.Thread(target=worker) for _ in range(2)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert not problems
    assert set(searches(tmp_path).values()) == {made}
    done = Counter((name, index) for name, index, state in trials(tmp_path) if state == "COMPLETE")
    assert set(done.values()) == {1}
    results = load_results(tmp_path)
    assert results.finished
    assert results.searches == made


def test_a_worker_that_comes_late_takes_the_recorded_decision(copied: Path) -> None:
    """Not its own: what is recorded holds, whatever it would find."""
    of = looked()
    Campaign(of, copied).baselines().note("look at 3 searches", {"stops": False, "open": []})
    runner = recorded_runs.work(of, copied, above=BETTER)
    assert runner.done
    assert searches(copied) == {"contrastive": 4, "normalized_softmax": 4}
    assert load_results(copied).searches == 4


def test_after_a_stop_the_same_command_finds_nothing_to_do(copied: Path) -> None:
    of = looked()
    before = trials(copied)
    assert recorded_runs.work(of, copied, above=BETTER).done == []
    assert trials(copied) == before


def test_a_worker_that_is_killed_before_the_decision_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(campaign: Campaign) -> bool:
        raise Killed

    of = looked()
    with monkeypatch.context() as patch:
        patch.setattr(work_loop, "take_look", killed)
        with pytest.raises(Killed):
            recorded_runs.record(of, tmp_path, above=BETTER)
    results = load_results(tmp_path)
    assert not results.finished
    assert headline(Summary(results)).startswith("Preliminary: ")
    assert "Stopped" not in headline(Summary(results))
    assert status(read_campaign(tmp_path))["state"] == "stopped"
    assert recorded_runs.work(of, tmp_path, above=BETTER).done == []
    assert load_results(tmp_path).finished


def test_a_paused_worker_leaves_work_of_a_later_look_to_others(copied: Path) -> None:
    """It claims a trial of a study that has grown meanwhile, and stands down."""
    of = looked()
    paused = Campaign(of, copied)
    method = of.methods[0]
    study = paused.study(method, Stage.REPRODUCTIONS)
    assert study is not None
    assert study.num_trials == 6  # two of each winner
    Campaign(of, copied).baselines().note("look at 3 searches", {"stops": False, "open": []})
    study.study.enqueue_trial({}, user_attrs={"trial_index": 7})

    def never(context: Any) -> Any:
        raise AssertionError("it has no parameters for this trial")

    assert study.work_once(never)
    recorded_runs.work(of, copied, above=BETTER)
    assert load_results(copied).searches == 4


def test_the_leader_must_be_above_all_others_in_every_category() -> None:
    high, low, middle = ([[v], [v + 0.001], [v - 0.001], [v]] for v in (0.5, 0.3, 0.4))
    look = Look.at(4, [4, 8])
    decided = {"a": high, "b": low, "c": [[0.3], [0.301], [0.299], [0.3005]]}
    assert decide({"aggregate": decided}, look) == {"stops": True, "open": []}
    tied = {"a": high, "b": [[0.5005], [0.5], [0.4995], [0.501]], "c": middle}
    found = decide({"aggregate": decided, "ensemble": tied}, look)
    assert found == {"stops": False, "open": [["ensemble", "a"]]}
    missing = decide({"aggregate": {**decided, "d": []}}, look)
    assert missing == {"stops": False, "open": [["aggregate", "d"]]}


def test_a_look_takes_stronger_evidence_than_the_end() -> None:
    """p = 0.012: clear for a fixed number of searches, not for the first of two looks."""
    one = [[v] for v in (0.50, 0.53, 0.56, 0.53)]
    other = [[v] for v in (0.46, 0.49, 0.46, 0.49)]
    p_value = stats.ttest_ind([v for (v,) in one], [v for (v,) in other]).pvalue
    assert 0.005 < p_value < 0.02
    scores = {"aggregate": {"one": one, "other": other}}
    assert not decide(scores, Look.at(4, [4, 8]))["stops"]
    assert decide(scores, Look.at(4, [4]))["stops"]


def test_nothing_is_added_to_what_was_looked_at(ended: Path) -> None:
    for change in (
        "protocol.search.repeats=20",
        "protocol.search.looks=[3]",
        "protocol.search.looks=null",
        "protocol.reproductions=3",
    ):
        with pytest.raises(UsageError, match="holds another experiment"):
            check_same_experiment(looked(change), ended)
    assert check_same_experiment(looked(), ended)


def test_what_was_looked_at_stands_in_no_table_with_other_runs(ended: Path, fixed: Path) -> None:
    sources = [Source(f.name, f, load_results(f)) for f in (ended, fixed)]
    assert len(groups([*sources, sources[0]])) == 3
    assert len(groups([sources[1]] * 2)) == 1
    with pytest.raises(UsageError, match=r"looked at while it grew .*looks=\[3, 4\]"):
        open_pack(ended)
