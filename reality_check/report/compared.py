"""The verdict on trials that were made elsewhere, by the statistics of a run's report."""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reality_check.config.metrics import DIVERGED, PRIMARY
from reality_check.config.search import least_retrained
from reality_check.report.analysis import Analysis
from reality_check.report.render.html import report_html
from reality_check.report.render.markdown import report_md
from reality_check.report.render.summary_json import finite, summary_data
from reality_check.report.sections import report_sections
from reality_check.report.sections.across import across_sections, suite_data
from reality_check.report.suite_summary import SuiteSummary
from reality_check.report.summary import Summary
from reality_check.results import (
    Deviation,
    ExperimentResults,
    MethodResults,
    ResultRow,
    SuiteResults,
    TrialRecord,
)
from reality_check.statistics import MAX_LEFT_OUT, MIN_TESTED, is_estimable, left_out
from reality_check.studies.storage import open_storage, storage_file
from reality_check.utils.errors import UsageError
from reality_check.utils.files import atomic_write

_ASKED = (
    "a table does not say how it came about, so please do: --draws independent (each trial of a "
    "search was drawn at random) or adaptive (by a sampler that learns from earlier ones: TPE, "
    "Gaussian process); --scores retrained (test scores are those of networks retrained with fresh "
    "seeds) or own (of the trials' own networks); --common-draws yes or no (trial k, or repeated "
    "search k, of every method has the same draws)"
)
#: What the report says of each answer.
_SAID = {
    "draws independent": "The trials of a search are taken as independent draws (random search), "
    "because you said so.",
    "draws adaptive": "The trials of a search are taken as drawn by an adaptive sampler, because "
    "you said so.",
    "scores retrained": "Test scores are taken as those of retrainings with fresh seeds, because "
    "you said so: the verdict is about a retraining of what a search finds.",
    "scores own": "Test scores are taken as those of the trials' own networks, because you said "
    "so: the verdict is about the network that a search ends with, not about a retraining.",
    "common draws yes": "Trial k (or repeated search k) of every method is taken as having the "
    "same draws, because you, or a column draw, said so. Two methods are compared trial by trial "
    "if these, and more than half of the names of their hyper-parameters, are the same.",
    "common draws no": "Methods are taken as having draws of their own, because you said so.",
}
_UNKNOWN = (
    "No table says whether all trials are in it, or whether anybody looked at test scores before "
    "the methods, the ranges and the budget were chosen. A trial without a validation score counts "
    "as one that loses to all others."
)

#: Trials by method, number of the search and number of the draw.
_Trials = dict[tuple[str, int, int], TrialRecord]
#: Test scores, each with the key of its trial and the name of its column.
_Tests = list[tuple[tuple[str, int, int], str, float]]


def compare(
    table: Any,
    *,
    draws: str | None = None,
    scores: str | None = None,
    common_draws: str | None = None,
    budget: int | None = None,
    columns: Mapping[str, str] | None = None,
    metric: str | None = None,
    html: str | Path | None = None,
) -> dict[str, Any]:
    """Return the verdict on trials that were made elsewhere.

    >>> import reality_check as rc
    >>> verdict = rc.compare("sweep.csv", draws="independent", scores="own")  # doctest: +SKIP

    Args:
        table: a CSV file, or rows, each a mapping; or a mapping from the name of a data set to its
            table, for a verdict over data sets. Its columns are ``method``, ``trial``,
            ``validation`` (higher is better), ``test`` (a fraction or percent; empty where nothing
            was scored) or several ``test.NAME``, and perhaps ``search`` (of repeated searches),
            ``draw`` and the hyper-parameters ``params.NAME``. Rows of a trial with a test score
            and no validation score are retrainings of it.
        draws: ``"independent"`` if every trial was drawn at random, ``"adaptive"`` if a sampler
            learned from earlier ones.
        scores: ``"retrained"`` if test scores are of networks that were trained again with fresh
            seeds, ``"own"`` if they are of the networks of the trials.
        common_draws: ``"yes"`` if trial k (or search k, if searches are repeated) of every method
            has the same draws, else ``"no"``. A column ``draw`` says yes.
        budget: the number of trials of a search that the verdict is about, estimated from all
            subsets of the one search of each method; by default a third of the trials.
        columns: what the table calls a column, by its name above; a minus sign before it says that
            lower is better.
        metric: the title of the test score.
        html: a file for the report as a page.

    Returns:
        The content of ``summary.json`` (``docs/results.md``): ``verdict``, ``results``, ...

    Raises:
        UsageError: the table cannot be read, it leaves a question open, or it allows no estimate.
    """
    options = draws, scores, common_draws, budget, columns or {}, metric
    if isinstance(table, Mapping):
        members = {str(name): _compared(one, *options) for name, one in table.items()}
        suite = SuiteSummary(SuiteResults("Comparison", members))
        sections, data = across_sections(suite, has_folders=False), finite(suite_data(suite))
    else:
        analysis = Analysis(Summary(_compared(table, *options)))
        sections, data = report_sections(analysis), summary_data(analysis)
    if html is not None:
        try:
            atomic_write(Path(html), report_html("Comparison", sections))
        except (OSError, ValueError) as error:
            raise UsageError(f"--html {html} cannot be written: {error}.") from error
    # A picture becomes its words, and an escaped character the character.
    text = re.sub(r"!\[(.*)\]\(.*\)|\\(.)", r"\1\2", report_md("Comparison", sections))
    return {**data, "text": text}


def _compared(
    table: Any,
    draws: str | None,
    scores: str | None,
    common_draws: str | None,
    budget: int | None,
    columns: Mapping[str, str],
    metric: str | None,
) -> ExperimentResults:
    """Return the trials of a table as results, see :func:`compare`."""
    rows = list(_rows(table, columns))
    if any("draw" in row for row in rows):
        common_draws = "yes"
    answers = f"draws {draws}", f"scores {scores}", f"common draws {common_draws}"
    for answer in answers:
        if answer not in _SAID:
            raise UsageError(f"{_ASKED}; got {answer}.")
    trials, tests = _parsed(rows)
    if not trials:
        raise UsageError("the table has no trials.")
    search = _search_settings(trials, draws, budget)
    repeated = "budget" not in search
    results = ExperimentResults(
        name="Comparison",
        protocol="",
        reference="",
        finished=True,
        methods=tuple(_methods(trials, own_draws=common_draws == "no")),
        rows=tuple(_result_rows(trials, tests, repeated, scores == "own")),
        deviations=(*(Deviation(a, _SAID[a]) for a in answers), Deviation("unknown", _UNKNOWN)),
        config={"protocol": {"search": search}},
        measure=metric or "score",
        tested_on="test data",
    )
    if not repeated:
        _check_budget(Summary(results))
    return results


def _search_settings(trials: _Trials, draws: str | None, budget: int | None) -> dict[str, int]:
    """Return the settings of the searches: ``trials`` of each, and ``budget`` if they are single.

    Raises:
        UsageError: a search should be repeated, or repeated searches differ in length.
    """
    sizes = Counter(key[:2] for key in trials)
    num_searches = Counter(method for method, _ in sizes).values()
    repeated, size = max(num_searches) > 1, min(sizes.values())
    if min(num_searches) < 2 and (repeated or draws == "adaptive"):
        raise UsageError(
            "a method has one search, which shows what it found, not what another one would find; "
            "where the sampler is adaptive, or other methods have several searches, repeat it with "
            "other seeds, three times or more (column search)."
        )
    # Repeated searches, and the budget if it is given, must all have one size.
    if repeated and {*sizes.values(), budget or size} != {size}:
        raise UsageError(
            "repeated searches must have equally many trials, which are the budget, but they have "
            f"{size} to {max(sizes.values())}, and --budget is {budget}."
        )
    return {"trials": size} | ({} if repeated else {"budget": budget or max(1, size // 3)})


def study_rows(url: str, names: str) -> Iterator[dict[str, Any]]:
    """Yield the trials of Optuna's studies; one that did not complete has no validation score.

    Args:
        url: their storage, such as ``sqlite:///studies.db``.
        names: ``STUDY,METHOD=STUDY,...``; studies of one method are repeated searches.

    Raises:
        UsageError: there is no such storage or study, or it has several objectives.
    """
    from optuna import load_study

    file = storage_file(url)
    if file is not None and not file.exists():
        raise UsageError(f"--optuna {url}: there is no such file.")
    storage, num_searches = open_storage(url), Counter[str]()
    for text in names.split(","):
        name = text.rpartition("=")[2]  # without "=", this is the name of the method, too
        try:
            study = load_study(study_name=name, storage=storage)
            sign = -1 if study.direction.name == "MINIMIZE" else 1
        except (KeyError, RuntimeError) as error:
            raise UsageError(f"{url} has no study {name!r} with one objective.") from error
        method = text.partition("=")[0]
        num_searches[method] += 1
        for trial in study.trials:
            yield {
                **trial.user_attrs,
                **{f"params.{key}": value for key, value in trial.params.items()},
                "method": method,
                "search": num_searches[method],
                "trial": trial.number,
                "validation": sign * (trial.value or 0.0)
                if trial.state.name == "COMPLETE"
                else None,
            }


def _rows(table: Any, columns: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the cells of each row that are not empty, by our names of columns."""
    if isinstance(table, str | Path):
        try:
            with open(table, encoding="utf-8-sig", newline="") as file:
                table = list(csv.DictReader(file))
        except (OSError, ValueError, csv.Error) as error:
            raise UsageError(f"{table} cannot be read as a CSV file: {error}.") from error
    rows = list(table)
    present = dict.fromkeys(str(name) for row in rows for name in row)
    for row in rows:
        cells = {str(name): str(value).strip() for name, value in row.items()}
        for column, name in columns.items():
            if (plain := name.removeprefix("-")) not in present:
                raise UsageError(f"there is no column {plain!r}, but {', '.join(present)}.")
            text = cells.get(plain, "")
            # Negated, and two signs cancel; "-" is an empty cell.
            cells[column] = text if name == plain else f"-{text}".replace("--", "")
        yield {k: v for k, v in cells.items() if v.strip("-").lower() not in ("", "nan", "none")}


def _parsed(rows: Iterable[Mapping[str, str]]) -> tuple[_Trials, _Tests]:
    """Return the trials and the test scores of rows, each of a trial or of a retraining of one."""
    trials: _Trials = {}
    tests: _Tests = []
    # Names of searches and of draws are numbered in the order in which they appear.
    searches, draws = (defaultdict[str, int](itertools.count().__next__) for _ in range(2))
    for row in rows:
        try:
            method, draw = row["method"], row.get("draw") or row["trial"]
            scores = {k: float(row[k]) for k in row if re.match(r"(validation|test)(\.|$)", k)}
        except (KeyError, ValueError) as error:
            raise UsageError(
                f"every row needs a method, a trial, and numbers as scores: {error} in {row}."
            ) from error
        key = method, searches[row.get("search", "")], draws[draw]
        # A row with test scores alone is a retraining; a trial without any score diverged.
        validation = scores.pop("validation", None if scores else DIVERGED)
        if validation is not None:
            if key in trials:
                raise UsageError(
                    f"trial {draw} of {method} is twice in the table; leave the validation score "
                    "of a retraining empty, and name repeated searches in a column search."
                )
            params = {k: row[k] for k in row if k.startswith("params.")}
            trials[key] = TrialRecord(key[2], "complete", validation, params, search=key[1])
        tests += [(key, column, value) for column, value in scores.items()]
    return trials, tests


def _methods(trials: _Trials, own_draws: bool) -> Iterator[MethodResults]:
    """Yield the methods with their trials in the order of their draws."""
    for name, keys in itertools.groupby(sorted(trials), key=lambda key: key[0]):
        search = tuple(trials[key] for key in keys)
        yield MethodResults(
            name,
            "",
            search,
            # Without hyper-parameters, the draw is what methods may have in common.
            searched=tuple(search[0].params) or ("draw",),
            has_own_draws=own_draws,
        )


def _result_rows(trials: _Trials, tests: _Tests, repeated: bool, own: bool) -> Iterator[ResultRow]:
    """Yield the test scores of the winners of repeated searches, or of all trials of single ones.

    Args:
        trials: the trials.
        tests: the test scores.
        repeated: whether searches are repeated.
        own: whether scores are of the trials' own networks.

    Raises:
        UsageError: a score is missing or out of place, or is neither a fraction nor in percent.
    """
    scored = {key for key, *_ in tests}
    for method, *_ in scored - trials.keys():
        raise UsageError(
            f"a test score of {method} is of a trial without a validation score; a retraining has "
            "the method, search and trial (or draw) of the trial that it repeats."
        )
    ranked = sorted(trials, key=lambda key: (trials[key].value, key in scored))
    winners = {*{key[:2]: key for key in ranked}.values()}  # the last key of each search
    for method, *_ in winners - scored:
        raise UsageError(
            f"the best trial of a search of {method} has no test score (0 if training diverged)."
        )
    if all(trials[key].value == value for key, _, value in tests):
        raise UsageError(
            "test scores are the validation scores, which say too much of a trial that they chose."
        )
    if own and len({(key, column) for key, column, _ in tests}) < len(tests):
        raise UsageError(
            "a trial has several test scores, but one network of its own (--scores retrained if "
            "these are retrainings)."
        )
    highest = max(abs(value) for *_, value in tests)
    if highest > 100:
        raise UsageError(
            f"test scores must be fractions or percent, got {highest:g}; divide all by one number, "
            "which changes no verdict."
        )
    for run, (key, column, value) in enumerate(sorted(tests)):
        if key in winners or not repeated:
            value /= 100 if highest > 1 else 1
            yield ResultRow("", key[0], column.removeprefix("test."), run, PRIMARY, value, *key[1:])


def _check_budget(summary: Summary) -> None:
    """Raise ``UsageError`` if searches of this many trials cannot be estimated from single ones."""
    budget = summary.budget
    for rows in summary.rows.values():
        validation, tests = summary.subsets(rows)
        trials, method = len(validation), rows[0].method
        if budget > trials or not is_estimable(trials, budget):
            raise UsageError(
                f"a search of {budget} of the {trials} trials of {method} would be decided by "
                f"fewer than {MIN_TESTED} effective trials, too few for an interval; make more, or "
                f"write --budget {max(1, trials // 3)}."
            )
        if (share := left_out(validation, tests, budget)) > MAX_LEFT_OUT:
            raise UsageError(
                f"{share:.0%} of all searches of {budget} trials of {method} are won by trials "
                f"without a test score; score the best {least_retrained(trials, budget)} trials (0 "
                "if a training diverged), or write a larger --budget."
            )
