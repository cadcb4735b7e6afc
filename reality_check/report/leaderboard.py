"""The leaderboard: a page with one table of runs for each data set and protocol."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

from reality_check.config.compose import compose
from reality_check.registry.pack import protocol_hash
from reality_check.report.combine import Source, combine
from reality_check.report.render.html import report_html
from reality_check.report.sections.across import verdict_blocks
from reality_check.report.sections.blocks import (
    Block,
    Bullets,
    Facts,
    Folded,
    Heading,
    PlainTable,
    Section,
)
from reality_check.report.sections.groups import folder_table, group_blocks
from reality_check.report.sections.hours import cost_section
from reality_check.report.suite_summary import SuiteSummary
from reality_check.report.summary import Summary
from reality_check.report.wording import listed
from reality_check.results import ExperimentResults, SuiteResults
from reality_check.utils.errors import UsageError

_HOW_TO_READ = (
    "Numbers are comparable within a table, and in no case between two: data set, split, network "
    "or protocol differ. Runs of the same methods on several data sets have a verdict over these.",
    "Everybody can hand in runs, and nothing here shows which runs were not handed in.",
)


def leaderboard_html(grouped: Sequence[Sequence[Source]]) -> str:
    """Return the page as HTML.

    Args:
        grouped: finished runs, in groups of comparable ones (:func:`groups`).

    Raises:
        UsageError: a run is not finished, or two runs have the same results of a method.
    """
    for group in grouped:
        for source in group:
            if not source.results.finished:
                raise UsageError(
                    f"{source.path} is not finished, so it stands on no leaderboard; run it to its "
                    "end."
                )
        _check_different(group)
    boards = [Summary(combine(group)) for group in grouped]
    # The first run of a group is hashed, since combined results have other names of methods.
    hashes = [protocol_hash(compose(group[0].results.config)) for group in grouped]
    blocks = Bullets(_HOW_TO_READ), *_across(boards), _index(boards, hashes)
    overview = Section("overview", "Data sets and protocols", blocks)
    sections = map(_section, itertools.count(1), boards, hashes)
    return report_html("Leaderboard", [overview, *sections])


def _across(boards: Sequence[Summary]) -> Iterator[Block]:
    """Yield the verdicts over data sets of boards that have the same methods."""
    suites: list[dict[str, ExperimentResults]] = []
    for board in boards:
        name = board.results.config["dataset"]["name"]
        for members in suites:
            model = next(iter(members.values())).config["model"]
            if name in members or model != board.results.config["model"]:
                continue
            with contextlib.suppress(UsageError):  # it differs in more than the data set
                joined = {**members, name: board.results}
                SuiteSummary(SuiteResults("", joined))
                members |= joined
                break
        else:
            suites.append({name: board.results})
    for members in suites:
        if len(members) > 1:
            protocols = dict.fromkeys(results.protocol for results in members.values())
            yield Heading(f"Across {listed([*members])}: {', '.join(protocols)}")
            yield from verdict_blocks(SuiteSummary(SuiteResults("", members)))


def _check_different(sources: Sequence[Source]) -> None:
    """Raise ``UsageError`` if two runs have the same results, which would count twice."""
    for first, second in itertools.combinations(sources, 2):
        for method in first.results.methods:
            # The rows of the method in each of the two runs
            rows = [
                [(r.category, r.reproduction, r.metric, r.value) for r in s.results.rows
                 if r.method == method.name]
                for s in (first, second)
            ]  # fmt: skip
            if rows[0] and rows[0] == rows[1]:
                raise UsageError(
                    f"{first.path} and {second.path} hold the same results of {method.name!r}, "
                    "which would count twice; name one of them."
                )


def _index(boards: Sequence[Summary], hashes: Sequence[str]) -> PlainTable:
    """Return a table with a row for each board."""
    header = ("Data set", "Protocol", "Protocol hash", "Trunk", "Methods", "Runs")
    rows = []
    for board, digest in zip(boards, hashes, strict=True):
        results, config = board.results, board.results.config
        counts = str(len(board.methods)), str(len(results.folders))
        data_set, trunk = config["dataset"]["name"], config["model"]["trunk"]
        rows.append((data_set, results.protocol, digest, trunk, *counts))
    return PlainTable("A table for each.", header, tuple(rows), words=header[:4])


def _section(number: int, board: Summary, digest: str) -> Section:
    """Return the section of a board; ``digest`` is its protocol hash."""
    results, config = board.results, board.results.config
    facts = (
        ("Images", f"fingerprint {config['code']['dataset'][:16]}"),
        ("Protocol hash", digest),
        ("Network", f"{config['model']['trunk']}, weights {config['model']['weights']}"),
        ("Software", ", ".join(f"{name} {version}" for name, version in results.versions.items())),
    )
    cost = cost_section(board)
    blocks = (
        *group_blocks(board, f"{number}/"),
        Facts(facts),
        *([Folded("Cost", cost.blocks, headed=False)] if cost else []),
        Folded("Runs", (folder_table(results.folders),), headed=False),
    )
    return Section(f"board-{number}", f"{config['dataset']['name']}, {results.protocol}", blocks)
