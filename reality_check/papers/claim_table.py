"""A table of the claims of experiments, with the criterion and the verdict of each."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from reality_check.config.claims import Claim
from reality_check.config.compose import load_experiment
from reality_check.config.differences import differing_keys
from reality_check.config.metrics import metric_of
from reality_check.config.neutral_keys import is_result_neutral
from reality_check.config.schema import Experiment
from reality_check.papers.claim_tests import ClaimVerdict, Finding, Verdict, judge
from reality_check.registry.pack import recorded_of
from reality_check.report.collect import collect
from reality_check.report.deviations import cut_short, is_serious
from reality_check.report.summary import Evidence, Summary
from reality_check.report.wording import counted, listed, p_text, true_minus
from reality_check.statistics import CONFIDENCE
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils.config_files import shipped_files
from reality_check.utils.errors import UsageError

NOT_RUN = "not run yet"
NOT_FINISHED = "not finished"
OVERTURNED = "overturned by a follow-up"
_OUTCOMES = (*get_args(Verdict), OVERTURNED, NOT_FINISHED, NOT_RUN)
#: Keys that may differ between a run and its plan, in addition to result-neutral ones.
_NOT_COMPARED = {"claims", "code", "storage"}


@dataclass(frozen=True)
class ClaimRow:
    """A claim with its criterion and its verdict, in words.

    Attributes:
        experiment: name of the experiment that makes the claim.
        claim: the claim, as in that experiment.
        criterion: the condition under which the claim is supported.
        outcome: the verdict in a word or two, or why there is none yet.
        verdict: the outcome with its numbers.
    """

    experiment: str
    claim: Claim
    criterion: str
    outcome: str
    verdict: str


def replications() -> list[Experiment]:
    """Return the shipped experiments that check claims of papers, sorted by name."""
    names = sorted(shipped_files("experiments"))
    return [load_experiment(name) for name in names if name.startswith("replications/")]


def claim_rows(
    experiments: Iterable[Experiment],
    runs: Sequence[Path] = (),
    log: Callable[[str], None] = lambda sentence: None,
) -> list[ClaimRow]:
    """Return all claims of experiments, with verdicts for those experiments that were run.

    Args:
        experiments: experiments whose claims are listed.
        runs: output folders and packs. Claims of runs of other experiments are appended.
        log: called with a sentence about each run whose experiment makes no claims.

    Raises:
        UsageError: a run is neither an output folder nor a pack, or its claims are not those of the
            experiment of the same name.
    """
    planned = {experiment.name: experiment for experiment in experiments}
    # By experiment: the verdict of each claim, and how the settings differ
    decided: dict[str, tuple[list[tuple[str, str]], str]] = {}
    for path in runs:
        recorded = recorded_of(path)
        locked = recorded.experiment
        if not locked.claims:
            log(f"{path} holds {locked.name}, which makes no claims (claims: ... in its YAML).")
            continue
        plan = planned.setdefault(locked.name, locked)
        _check_claims(locked, plan, path)
        decided[locked.name] = _verdicts(recorded), _changes(plan, locked)
    rows = []
    for name, experiment in planned.items():
        not_run = [(NOT_RUN, NOT_RUN)] * len(experiment.claims), ""
        verdicts, changes = decided.get(name, not_run)
        for claim, (outcome, text) in zip(experiment.claims, verdicts, strict=True):
            text += changes
            if claim.overturned_by and outcome not in (NOT_RUN, NOT_FINISHED):
                outcome, text = OVERTURNED, f"**{OVERTURNED}**, {claim.overturned_by}; was {text}"
            rows.append(ClaimRow(name, claim, criterion(claim), outcome, text))
    return rows


def tally(rows: Sequence[ClaimRow]) -> list[str]:
    """Return lines with the counts of outcomes by paper and in total: ``000: 2 supported, ...``."""
    papers: dict[str, list[ClaimRow]] = {}
    for row in rows:
        papers.setdefault(row.claim.source.partition(",")[0], []).append(row)
    lines = [f"{paper}: {_counts(papers[paper])}" for paper in sorted(papers)]
    if len(lines) > 1:
        lines.append(f"in all: {_counts(rows)}")
    decided = {row.experiment for row in rows if row.outcome in get_args(Verdict)}
    if decided:
        lines.append(
            f"by chance alone: in {1 - CONFIDENCE:.0%} of {counted(len(decided), 'experiment')}, "
            f"{len(decided) * (1 - CONFIDENCE):.2g} on average, at least one difference would be "
            "found where there is none (each corrects for all its claims)"
        )
    return lines


def _counts(rows: Sequence[ClaimRow]) -> str:
    counts = Counter(row.outcome for row in rows)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in _OUTCOMES if counts[outcome])


def _check_claims(locked: Experiment, planned: Experiment, path: Path) -> None:
    """Raise ``UsageError`` if a run had other claims than its experiment has now."""
    editable = {"overturned_by", "earlier"}
    ours, theirs = (
        [claim.plain(exclude=editable) for claim in experiment.claims]
        for experiment in (planned, locked)
    )
    if differing := list(differing_keys(ours, theirs)):
        raise UsageError(
            f"{path} was run with other claims than {planned.name} has now "
            f"({', '.join(differing[:3])}); claims are decided before a run, so run it again."
        )


def _changes(planned: Experiment, locked: Experiment) -> str:
    """Return in words which settings of the experiment have changed since it was run, or ``""``."""
    ours, theirs = (plan.plain(exclude=_NOT_COMPARED) for plan in (planned, locked))
    keys = [key for key in differing_keys(ours, theirs) if not is_result_neutral(key)]
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return f" (run with another {', '.join(keys[:3])}{more})" if keys else ""


def _verdicts(recorded: RecordedExperiment) -> list[tuple[str, str]]:
    """Return the verdict of each claim, in a word or two and with its numbers."""
    from reality_check.report.untrained import not_above_untrained

    locked, results = recorded.experiment, collect(recorded, importance=False)
    if not results.finished:
        return [(NOT_FINISHED, NOT_FINISHED)] * len(locked.claims)
    summary = Summary(results)
    remarks = {
        "not better than the untrained network": not_above_untrained(summary),
        "often cut short": [m.name for m in results.methods if is_serious(*cut_short(m))],
    }
    return [
        (
            verdict.verdict,
            _verdict_text(verdict, locked)
            + _remarks(verdict.claim, remarks)
            + _needed_searches(verdict, summary),
        )
        for verdict in judge(locked, summary)
    ]


def _needed_searches(verdict: ClaimVerdict, summary: Summary) -> str:
    """Return in words how many more searches would decide an undecided claim; else ``""``."""
    if verdict.verdict != "undecided" or not summary.evidence.of_losses:
        return ""
    times = [f.times for f in verdict.findings if f.verdict == "undecided"]
    known = [factor for factor in times if factor is not None]
    if len(known) < len(times):
        return " (no number of searches that anybody would pay for would decide it)"
    suffix = "trials" if summary.evidence is Evidence.SUBSETS else "searches"
    methods = {side.method for f in verdict.findings for side in (f.first, f.second)}
    hours = sum(cost.hours for cost in summary.results.costs if cost.method in methods)
    needed = f"{max(known) * hours:.2g}"
    return (
        f" (about {max(known):.2g} times as many {suffix} would decide it: "
        f"{needed} {'hour' if needed == '1' else 'hours'} of processes)"
    )


def _remarks(claim: Claim, remarks: Mapping[str, Collection[str]]) -> str:
    """Return the remarks on the methods of a claim, which do not affect its verdict."""
    methods = dict.fromkeys(method for pair in claim.pairs for method in pair)
    texts = []
    for remark, names in remarks.items():
        if affected := [f"`{method}`" for method in methods if method in names]:
            texts.append(f" ({remark}: {listed(affected)})")
    return "".join(texts)


def criterion(claim: Claim) -> str:
    """Return the condition that supports a claim, e.g. ``a above b: MAP@R (aggregate)``."""
    relation = {
        "above": "above",
        "not_below": f"at most {_margin(claim)} below",
        "equal": f"within {_margin(claim)} of",
    }[claim.test]
    than, metrics = claim.than, listed([metric_of(metric).title for metric in claim.metrics])
    # ``than`` names what the second side is measured by, where that differs.
    score = f"{metrics} ({listed(claim.categories)})"
    other = " ".join(filter(None, [than.metric and metric_of(than.metric).title, than.category]))
    if all(first == second for first, second in claim.pairs):
        return f"{listed([f'`{method}`' for method, _ in claim.pairs])}: {score} {relation} {other}"
    groups = [
        f"`{first}` {relation} {listed([f'`{second}`' for _, second in pairs])}"
        for first, pairs in itertools.groupby(claim.pairs, key=lambda pair: pair[0])
    ]
    return f"{'; '.join(groups)}: {score}{f', against {other}' if other else ''}"


def _margin(claim: Claim) -> str:
    """Return the margin of a claim in words."""
    if isinstance(claim.margin, str):
        return claim.margin
    if not metric_of(claim.metrics[0]).percent:
        return f"{claim.margin:g}"
    return "1 point" if claim.margin == 1 else f"{claim.margin:g} points"


def _verdict_text(verdict: ClaimVerdict, experiment: Experiment) -> str:
    """Return a verdict with the evidence of each comparison, and its result if that differs."""
    texts = []
    for finding in verdict.findings:
        name = f"{_distinguished(verdict, finding)}: " if len(verdict.findings) > 1 else ""
        result = f"{finding.verdict}, " if finding.verdict != verdict.verdict else ""
        texts.append(f"{name}{result}{_evidence(verdict.claim, finding)}")
    word = f"**{verdict.verdict}**"
    if verdict.verdict == "contradicted":
        word = f"**contradicted here** ({_regime(experiment)})"
    return f"{word}: {'; '.join(texts)}"


def _regime(experiment: Experiment) -> str:
    """Return in words on what, with what, and how well tuned the methods were compared."""
    trunk, search = experiment.model.trunk, experiment.protocol.search
    network = "a head on features" if trunk == "identity" else trunk
    return (
        f"{experiment.dataset.name}, {network}, searches of {search.budget or search.trials} trials"
    )


def _distinguished(verdict: ClaimVerdict, finding: Finding) -> str:
    """Return how a comparison differs from the others of its claim: methods, category, metric."""
    columns = zip(*map(_compared, verdict.findings), strict=True)
    pairs = zip(_compared(finding), columns, strict=True)
    return ", ".join(part for part, column in pairs if len(set(column)) > 1)


def _compared(finding: Finding) -> tuple[str, str, str]:
    """Return the methods, the category and the metric of a comparison, in words."""
    methods = dict.fromkeys([finding.first.method, finding.second.method])
    names = " − ".join(f"`{method}`" for method in methods)
    return names, finding.first.category, metric_of(finding.first.metric).title


def _evidence(claim: Claim, finding: Finding) -> str:
    """Return difference, interval, p-values, n and diverged runs, or why there is no test."""
    difference = finding.difference
    if difference is None or difference.low is None or difference.high is None:
        return finding.why
    # Fractions are shown in points.
    scale, suffix = (100, " points") if metric_of(finding.first.metric).percent else (1, "")
    mean, low, high = (
        true_minus(scale * value, plus=True)
        for value in (difference.mean, difference.low, difference.high)
    )
    decided = p_text(finding.p) if finding.p is not None else finding.why
    text = f"{mean}{suffix} ({low} to {high}), {decided}"
    if finding.p_equal is not None and finding.p_equal < 1 - CONFIDENCE:
        text += f", within {_margin(claim)} {p_text(finding.p_equal)}"
    sizes = " and ".join(map(str, dict.fromkeys(difference.n)))  # equal sizes are named once
    return f"{text}, n = {sizes}{_diverged(finding)}"


def _diverged(finding: Finding) -> str:
    """Return in words how many runs of each side diverged; networks of both are named once."""
    by_side = {
        f"`{side.method}`{' (complete)' if side.category == 'complete' else ''}": count
        for side, count in zip((finding.first, finding.second), finding.diverged, strict=True)
    }
    counts = [f"{count} of {name}" for name, count in by_side.items() if count]
    return f" (diverged, so counted as 0: {listed(counts)})" if counts else ""


def markdown(rows: Sequence[ClaimRow]) -> str:
    """Return Markdown: the counts as a list, and the rows as a table (docs/replications.md)."""
    lines = [
        *(f"- {line}" for line in tally(rows)),
        "",
        "| claim | paper | supported if | experiment | found before | verdict |",
        "|" + "---|" * 6,
    ]
    for row in rows:
        text, source, earlier = row.claim.text, row.claim.source, row.claim.earlier or ""
        cells = (text, source, row.criterion, row.experiment, earlier, row.verdict)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"
