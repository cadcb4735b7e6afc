"""The command ``reality-check verdicts``, from output folders to a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy import stats
from support.paths import ROOT

from reality_check.cli.main import main
from reality_check.config import Experiment, compose
from reality_check.config.claims import Claim
from reality_check.config.metrics import PRIMARY
from reality_check.papers import claim_table as room
from reality_check.papers.claim_table import NOT_RUN, claim_rows, criterion, markdown, replications
from reality_check.registry.pack import read_pack
from reality_check.results import Cost, ExperimentResults, MethodResults, ResultRow, TrialRecord
from reality_check.studies.output_folder import lock_experiment
from reality_check.utils.errors import UsageError

DOCS = ROOT / "docs" / "replications.md"
CLAIMS: list[dict[str, Any]] = [
    {"name": "better", "source": "000, Table 1", "text": "A beats b", "pairs": [["a", "b"]]},
    {
        "name": "codes",
        "source": "001, Table 6",
        "text": "Codes of a are as good",
        "pairs": [["a", "a"], ["b", "b"]],
        "metrics": ["binary_precision_at_1"],
        "than": {"metric": "precision_at_1"},
        "categories": ["ensemble"],
        "test": "not_below",
        "margin": 2,
    },
]


def experiment(**changes: Any) -> Experiment:
    return compose(
        {
            "name": "made_up",
            "dataset": "glyphs",
            "model": "conv4",
            "protocol": {"base": "quick_one_search", "final_metrics": ["binary_precision_at_1"]},
            "methods": [{"base": "contrastive", "name": name} for name in "ab"],
            "claims": CLAIMS,
            "code": {"dataset": "1234"},
            **changes,
        }
    )


def rows(lost: Mapping[str, Collection[int]]) -> list[ResultRow]:
    """Five runs of each method; those that are lost diverged."""
    levels = {
        ("a", "aggregate", PRIMARY): 0.32,
        ("b", "aggregate", PRIMARY): 0.3,
        **{(method, "ensemble", "precision_at_1"): 0.6 for method in "ab"},
        ("a", "ensemble", "binary_precision_at_1"): 0.595,
        ("b", "ensemble", "binary_precision_at_1"): 0.5,
    }
    return [
        ResultRow("made_up", method, category, n, metric, value)
        for (method, category, metric), level in levels.items()
        for n in range(5)
        for value in [0.0 if n in lost.get(method, ()) else level + 0.001 * (n % 3)]
    ]


def records(method: str, lost: Mapping[str, Collection[int]]) -> MethodResults:
    said = ["NaN" if n in lost.get(method, ()) else None for n in range(5)]
    runs = (TrialRecord(n, "complete", diverged=why) for n, why in enumerate(said))
    return MethodResults(method, "L", reproductions=tuple(runs))


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A function that makes an output folder with made-up results."""

    def run(
        finished: bool = True,
        lost: Mapping[str, Collection[int]] | None = None,
        untrained: float | None = None,
        **changes: Any,
    ) -> Path:
        locked, lost = experiment(**changes), lost or {}
        methods = tuple(records(name, lost) for name in "ab")
        measured = tuple(rows(lost))
        start = [] if untrained is None else [untrained]
        baselines = tuple(
            ResultRow("made_up", "untrained embedder", "aggregate", 0, PRIMARY, value)
            for value in start
        )
        results = ExperimentResults(
            locked.name, "quick", "mlrc", finished, methods, measured, baselines
        )
        monkeypatch.setattr(room, "collect", lambda recorded, importance: results)
        lock_experiment(locked, tmp_path)
        (tmp_path / "studies.db").touch()
        return tmp_path

    return run


def texts(folders: Sequence[Path], *planned: Experiment) -> list[str]:
    return [row.verdict for row in claim_rows(planned, folders)]


def test_a_folder_says_what_became_of_its_claims(ran: Callable[..., Path]) -> None:
    better, codes = texts([ran()])
    assert re.fullmatch(
        r"\*\*supported\*\*: \+2\.00 points \(\+1\.\d\d to \+2\.\d\d\), p < 0\.001, "
        r"n = 5",
        better,
    )
    assert codes.startswith(
        "**contradicted here** (glyphs, conv4, searches of 6 trials): `a`: supported, −0.50 points"
    )
    assert "; `b`: −10.00 points" in codes, "the verdict of the claim is not repeated"


def test_a_verdict_names_the_runs_that_diverged(ran: Callable[..., Path]) -> None:
    better, codes = texts([ran(lost={"b": [1]})])
    assert better.endswith("n = 5 (diverged, so counted as 0: 1 of `b`)")
    first, _, second = codes.partition("; `b`: ")
    assert first.endswith("n = 5"), "a lost none"
    assert second.endswith("n = 5 (diverged, so counted as 0: 1 of `b`)"), "the same networks"
    better, _ = texts([ran(lost={"a": [0, 2], "b": [1]})])
    assert better.endswith("(diverged, so counted as 0: 2 of `a` and 1 of `b`)")


def test_a_verdict_names_who_is_not_above_the_untrained_network(ran: Callable[..., Path]) -> None:
    better, codes = texts([ran(untrained=0.31)])
    assert better.startswith("**supported**: +2.00 points")
    assert better.endswith("n = 5 (not better than the untrained network: `b`)")
    assert codes.endswith("(not better than the untrained network: `b`)")
    for text in texts([ran(untrained=0.9)]):
        assert text.endswith("(not better than the untrained network: `a` and `b`)")


def test_methods_that_always_diverged_have_no_verdict(ran: Callable[..., Path]) -> None:
    every = range(5)
    better, codes = texts([ran(lost={"a": every, "b": every})])
    assert better == "**undecided**: every run of a and b diverged"
    assert codes.endswith("; `b`: every run of b diverged")


def test_the_verdict_says_what_would_decide_the_undecided(
    ran: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three searches with two trainings each of both methods, which lie close together."""
    protocol = experiment().plain()["protocol"]
    protocol |= {
        "reproductions": 2,
        "search": protocol["search"] | {"kind": "repeated", "repeats": 3},
    }
    claims = [CLAIMS[0], CLAIMS[0] | {"name": "as_good", "test": "equal", "margin": 0.5}]
    folder = ran(protocol=protocol, claims=claims)
    locked = experiment(protocol=protocol, claims=claims)
    measured = tuple(
        ResultRow("made_up", method, "aggregate", 2 * k + r, PRIMARY, value, search=k, trial=0)
        for method, level in {"a": 0.305, "b": 0.3}.items()
        for k in range(3)
        for r in range(2)
        for value in [level + 0.01 * (k - 1) + 0.001 * (2 * r - 1)]
    )
    costs = tuple(Cost(method, "search", "cpu", 9, 1.5) for method in "ab")
    methods = tuple(MethodResults(method, "L") for method in "ab")
    results = ExperimentResults(
        "made_up", "quick", "mlrc", True, methods, measured, config=locked.plain(), costs=costs
    )
    monkeypatch.setattr(room, "collect", lambda recorded, importance: results)
    rows = claim_rows([], [folder])
    better, as_good = (row.verdict for row in rows)
    assert better.startswith("**undecided**: +0.50 points")
    actual = re.search(
        r" \(about (\S+) times as many searches would decide it: (\d+) hours", better
    )
    assert actual is not None, better
    # That it is within the margin of 1.5 points, of which 1 is left: a standard deviation.
    needed = 2 * (stats.norm.ppf(1 - 0.05 / 8) + stats.norm.ppf(0.8)) ** 2
    assert 3 * float(actual[1]) == pytest.approx(needed, rel=0.15)
    assert int(actual[2]) == pytest.approx(3 * float(actual[1]), rel=0.05)
    assert as_good.endswith("(no number of searches that anybody would pay for would decide it)")


def test_experiments_that_were_not_run_say_so(ran: Callable[..., Path]) -> None:
    other = experiment(name="other")
    actual = claim_rows([other], [ran()])
    assert [row.experiment for row in actual] == ["other", "other", "made_up", "made_up"]
    assert [row.verdict == NOT_RUN for row in actual] == [True, True, False, False]


def test_an_unfinished_run_has_no_verdict(ran: Callable[..., Path]) -> None:
    assert texts([ran(finished=False)]) == ["not finished", "not finished"]


def test_a_run_with_another_budget_says_so(ran: Callable[..., Path]) -> None:
    protocol = experiment().plain()["protocol"] | {"reproductions": 2}
    actual = texts([ran(protocol=protocol, device="cpu")], experiment())  # elsewhere is no other
    assert all(text.endswith("(run with another protocol.reproductions)") for text in actual)


def test_claims_cannot_be_changed_after_the_run(ran: Callable[..., Path]) -> None:
    easier = [CLAIMS[0] | {"margin": 0.1}, CLAIMS[1]]
    with pytest.raises(
        UsageError, match=r"other claims than made_up.*\bbetter\.margin.*run it again"
    ):
        claim_rows([experiment(claims=easier)], [ran()])


def test_a_folder_without_claims_is_passed_over_and_named(
    ran: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    messages: list[str] = []
    folder = ran(claims=[])
    assert [row.verdict for row in claim_rows([experiment()], [folder], messages.append)] == [
        NOT_RUN,
        NOT_RUN,
    ]
    assert messages == [f"{folder} holds made_up, which makes no claims (claims: ... in its YAML)."]
    assert main(["verdicts", str(folder)]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", messages[0] + "\n")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "`a` above `b`: MAP@R (aggregate)"),
        (
            {"pairs": [["a", "b"], ["a", "c"], ["b", "c"]], "categories": ["ensemble", "complete"]},
            "`a` above `b` and `c`; `b` above `c`: MAP@R (ensemble and complete)",
        ),
        ({"test": "equal"}, "`a` within 5 % of `b`: MAP@R (aggregate)"),
        (
            {"test": "not_below", "margin": 2.5, "metrics": ["precision_at_1", "NMI"]},
            "`a` at most 2.5 points below `b`: P@1 and NMI (aggregate)",
        ),
        (
            {"test": "equal", "metrics": ["separability"], "margin": 0.1},
            "`a` within 0.1 of `b`: separability (ratio) (aggregate)",
        ),
        (
            {"than": {"category": "complete"}, "categories": ["ensemble"]},
            "`a` above `b`: MAP@R (ensemble), against complete",
        ),
        (
            {"than": {"metric": "precision_at_1"}, "metrics": ["binary_precision_at_1"]},
            "`a` above `b`: binary P@1 (aggregate), against P@1",
        ),
        (
            {"pairs": [["a", "a"], ["b", "b"]], "than": {"category": "complete"}},
            "`a` and `b`: MAP@R (aggregate) above complete",
        ),
    ],
)
def test_what_would_support_a_claim_in_words(changes: dict[str, Any], text: str) -> None:
    assert criterion(Claim.model_validate(CLAIMS[0] | changes)) == text


# -- the command, and the page ---------------------------------------------------------------------


def test_the_command_prints_claims_and_verdicts(
    ran: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verdicts", str(ran())]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "made_up:"
    assert lines[1] == "  better (000, Table 1): A beats b"
    assert lines[2] == "    supported if a above b: MAP@R (aggregate)"
    assert lines[3].startswith("    supported: +2.00 points")
    assert lines[-4:-1] == [
        "000: 1 supported",
        "001: 1 contradicted",
        "in all: 1 supported, 1 contradicted",
    ]
    assert lines[-1].startswith("by chance alone: in 5% of 1 experiment, 0.05 on average")


def test_a_follow_up_that_turned_a_verdict_around_is_named(ran: Callable[..., Path]) -> None:
    folder = ran()
    later = [CLAIMS[0] | {"overturned_by": "`equal_values`, n = 8"}, CLAIMS[1]]
    row, other = claim_rows([experiment(claims=later)], [folder])
    assert row.outcome == "overturned by a follow-up"
    assert row.verdict.startswith(
        "**overturned by a follow-up**, `equal_values`, n = 8; was **supported**: +2.00 points"
    )
    assert other.outcome == "contradicted"
    (not_run, _) = claim_rows([experiment(claims=later)])
    assert not_run.outcome == NOT_RUN


def test_without_folders_it_lists_the_replications(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verdicts"]) == 0
    printed = capsys.readouterr().out
    for experiment in replications():
        assert f"{experiment.name}:" in printed
    count = sum(len(one.claims) for one in replications())
    assert printed.count(f"    {NOT_RUN}\n") == count
    assert printed.endswith(f"in all: {count} {NOT_RUN}\n")


def test_the_page_has_every_claim_with_what_would_support_it() -> None:
    """All but the last column, which is filled in from runs."""

    def decided(text: str) -> list[str]:
        lines = [line for line in text.splitlines() if line.startswith("|")]
        return [line.rstrip("| ").rpartition(" | ")[0] for line in lines]

    page = DOCS.read_text(encoding="utf-8")
    table = page.partition("<!-- verdicts -->")[2].partition("<!-- end -->")[0]
    assert decided(table) == decided(markdown(claim_rows(replications())))


def test_the_page_says_what_our_packs_of_replications_say() -> None:
    names = {experiment.name for experiment in replications()}
    packs = {read_pack(path).experiment.name: path for path in (ROOT / "registry").glob("*.pack")}
    ours = {name: path for name, path in packs.items() if name in names}
    assert ours
    page = DOCS.read_text(encoding="utf-8").splitlines()
    actual = markdown(claim_rows(replications(), list(ours.values()))).splitlines()
    for line in actual:
        if any(f"| {name} |" in line for name in ours):
            assert line in page


def test_the_page_of_fifteen_losses_has_the_differences_of_our_pack() -> None:
    path = ROOT / "registry" / "ccl_pfml_images.pack"
    actual = markdown(claim_rows([read_pack(path).experiment], [path]))
    differences = re.findall(r"[+−]\d+\.\d+ points \([^)]*\)", actual)
    assert len(differences) == 6
    page = (ROOT / "docs" / "fifteen_losses.md").read_text(encoding="utf-8")
    assert all(difference.replace(" points", "") in page for difference in differences)
