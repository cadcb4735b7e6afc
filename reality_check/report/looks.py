"""What a report says of a campaign that was looked at while it grew."""

from __future__ import annotations

from reality_check.config.differences import value_at
from reality_check.report.text import listed
from reality_check.results import ExperimentResults
from reality_check.statistics import Look


def sizes(results: ExperimentResults) -> list[int]:
    """The numbers of searches at the looks, the largest last; none for a campaign without looks."""
    looks = value_at(results.config, "protocol.search.looks")
    if not looks or results.searches is None:
        return []
    return [*looks, value_at(results.config, "protocol.search.repeats")]


def look_of(results: ExperimentResults) -> Look | None:
    """The look that results are of, or that the work goes on to; ``None`` without looks."""
    planned = sizes(results)
    return Look.at(results.searches or 0, planned) if planned else None


def stopped_early(results: ExperimentResults) -> bool:
    """Whether one method was above all others before the last look."""
    planned = sizes(results)
    return bool(planned) and results.finished and (results.searches or 0) < planned[-1]


def stop_sentence(results: ExperimentResults) -> str:
    """Return where the campaign stopped early; empty where it did not."""
    planned = sizes(results)
    if not stopped_early(results):
        return ""
    number = planned.index(results.searches or 0) + 1
    return (
        f"Stopped at look {number} of {len(planned)}, after {results.searches} of {planned[-1]} "
        "searches."
    )


def look_sentence(results: ExperimentResults) -> str:
    """Return how often it was looked at and what that means for the numbers; may be empty."""
    look, planned = look_of(results), sizes(results)
    if look is None:
        return ""
    seen = listed([str(size) for size in planned[:-1]])
    went = f"looks after {seen} of {planned[-1]} searches were planned"
    stop = stop_sentence(results)
    return (
        f"{stop + ' ' if stop else ''}{went[0].upper()}{went[1:]}, each of which ends the "
        "comparison if one method is above all others. Intervals and p-values allow for the looks: "
        f"at {results.searches} searches a single difference counts "
        f"below p = {look.level:.2g}."
    )
