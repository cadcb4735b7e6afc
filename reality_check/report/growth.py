"""What a report says of an experiment that grew while it was run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from reality_check.config.metrics import Stage
from reality_check.results import Deviation
from reality_check.studies.growth import Step, describe_changes

#: Keys by which a search becomes longer, or more of them; and those of which more is measured.
_OF_SEARCH = ("protocol.search.trials", "protocol.search.trials_per_parameter")
_OF_PLAN = ("protocol.search.repeats", "protocol.search.retrain_best", "protocol.reproductions")


def grown(steps: Sequence[Step]) -> Iterator[Deviation]:
    """One sentence a step; more trials or reproductions after some were seen are serious.

    To extend a run, or to stop it, because of what it shows is to select by the result.
    """
    for number, step in enumerate(steps, 1):
        day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(step.time))
        text = f"Step {number} ({day} UTC): {describe_changes(step.changes)}."
        search = _seen(step, Stage.SEARCH)
        runs = _seen(step, Stage.REPRODUCTIONS, Stage.FINAL) or search
        if search and any(key in step.changes for key in _OF_SEARCH):
            why = (
                f"The searches were extended after their results could be seen ({search}), which "
                "may favour methods that looked bad before."
            )
            yield Deviation("extended search", f"{text} {why}", True)
        elif runs and any(key in step.changes for key in _OF_PLAN):
            why = (
                f"More was trained after results could be seen ({runs}), which may favour stopping "
                "at a welcome result."
            )
            yield Deviation("more runs", f"{text} {why}", True)
        else:
            yield Deviation("grown in steps", text)


def _seen(step: Step, *stages: Any) -> str:
    """How many trials of these stages each method had by then."""
    counts = {
        method: sum(done.get(stage, 0) for stage in stages) for method, done in step.done.items()
    }
    return ", ".join(f"{count} of {method}" for method, count in counts.items() if count)
