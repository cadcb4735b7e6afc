"""The leaderboard: one page with a table for each data set and protocol, of runs of anybody."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from reality_check.config.compose import compose
from reality_check.registry.pack import protocol_hash
from reality_check.report.combine import combine, describe
from reality_check.report.pooling import Source
from reality_check.report.render.html import report_html
from reality_check.report.sections.blocks import (
    Block,
    Box,
    Bullets,
    ComparisonTables,
    Facts,
    Folded,
    Heading,
    PlainTable,
    Section,
)
from reality_check.report.sections.comparison import interval_figures, legend
from reality_check.report.sections.deviations import deviations_section
from reality_check.report.sections.groups import Group
from reality_check.report.sections.verdict import headline
from reality_check.report.summary import Summary
from reality_check.report.tables import overview_table
from reality_check.report.text import NOTHING, hours_text
from reality_check.utils.errors import UsageError

_HOW_TO_READ = (
    "Numbers are comparable within a table, and in no case between two: data set, split, network "
    "or protocol differ.",
    "Everybody can hand in runs, and nothing here shows which runs were not handed in.",
)


def leaderboard_html(grouped: Sequence[Sequence[Source]]) -> str:
    """Return the page.

    Args:
        grouped: finished runs, those that stand in one table together (:func:`groups`).

    Raises:
        UsageError: one is not finished, or two hold the same results of a method.
    """
    for group in grouped:
        for source in group:
            if not source.results.finished:
                raise UsageError(
                    f"{source.path} is not finished, so it stands on no leaderboard; run it to its "
                    "end."
                )
        _check_different(group)
    boards = [Group(Summary(combine(group)), tuple(map(describe, group))) for group in grouped]
    # Of one run: where methods of several share a name, those of the whole have labels in theirs.
    hashes = [protocol_hash(compose(group[0].results.config)) for group in grouped]
    index = _index(boards, hashes)
    overview = Section("overview", "Data sets and protocols", (Bullets(_HOW_TO_READ), index))
    numbered = enumerate(zip(boards, hashes, strict=True), 1)
    sections = [_section(number, board, protocol) for number, (board, protocol) in numbered]
    return report_html("Leaderboard", [overview, *sections])


def _check_different(sources: Sequence[Source]) -> None:
    """The same results twice would count as twice the evidence."""
    for one, other in itertools.combinations(sources, 2):
        for method in one.results.methods:
            rows = [
                [(r.category, r.reproduction, r.metric, r.value) for r in s.results.rows
                 if r.method == method.name]
                for s in (one, other)
            ]  # fmt: skip
            if rows[0] and rows[0] == rows[1]:
                raise UsageError(
                    f"{one.path} and {other.path} hold the same results of {method.name!r}, which "
                    "would count twice; name one of them."
                )


def _index(boards: Sequence[Group], hashes: Sequence[str]) -> PlainTable:
    header = ("Data set", "Protocol", "Protocol hash", "Trunk", "Methods", "Runs")
    rows = []
    for board, protocol in zip(boards, hashes, strict=True):
        results, config = board.summary.results, board.summary.results.config
        counts = str(len(board.summary.methods)), str(len(board.folders))
        names = config["dataset"]["name"], results.protocol, protocol
        rows.append((*names, config["model"]["trunk"], *counts))
    return PlainTable("A table for each.", header, tuple(rows), words=header[:4])


def _section(number: int, board: Group, protocol: str) -> Section:
    summary = board.summary
    blocks: list[Block] = [headline(summary), Facts(tuple(_facts(summary, protocol)))]
    if (table := overview_table(summary)) is not None:
        blocks += [ComparisonTables((table,), summary.origins), legend(summary)]
    blocks += [*interval_figures(summary, f"{number}/")[:1], _costs(summary)]
    deviations = deviations_section(summary)
    box = Box(deviations.kind, (Heading(deviations.heading), *deviations.blocks))
    blocks += [box, Folded("Runs", (_runs(board),), headed=False)]
    title = f"{summary.results.config['dataset']['name']}, {summary.results.protocol}"
    return Section(f"board-{number}", title, tuple(blocks))


def _facts(summary: Summary, protocol: str) -> Iterator[tuple[str, str]]:
    config = summary.results.config
    yield "Images", f"fingerprint {config['code']['dataset'][:16]}"
    yield "Protocol hash", protocol
    yield "Network", f"{config['model']['trunk']}, weights {config['model']['weights']}"
    yield "Intervals", f"95 %, over {summary.basis.units}"
    known = dict(summary.results.facts)
    yield from ((key, known[key]) for key in ("Classes", "Folds", "Search") if key in known)


def _costs(summary: Summary) -> PlainTable:
    """What each method took, of all stages together; the attempts that were lost included."""
    rows = []
    for name in summary.methods:
        own = [cost for cost in summary.results.costs if cost.method == name]
        attempts = str(sum(cost.attempts for cost in own))
        searched = summary.records[name].searched if name in summary.records else ()
        rows.append((name, ", ".join(searched) or "nothing", hours_text(own) or NOTHING, attempts))
    header = ("Method", "Searched", "Cost", "Attempts")
    return PlainTable("Cost, with search and lost attempts.", header, tuple(rows), words=header[:3])


def _runs(board: Group) -> PlainTable:
    versions = ", ".join(f"{k} {v}" for k, v in board.summary.results.versions.items())
    rows = [
        (run.label, run.experiment, ", ".join(run.methods), str(run.seed)) for run in board.folders
    ]
    caption = f"Where the results are from. Software that all share: {versions or 'none'}."
    header = ("Run", "Experiment", "Methods", "Seed")
    return PlainTable(caption, header, tuple(rows), words=header[:3])
