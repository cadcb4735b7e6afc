"""A pytest plugin that says what each failed check means, and sorts failures by severity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

NAME = "pml_extensions.testing"
#: Severities of a failure: training goes wrong, or a convention of PML or PyTorch is broken.
LEVELS = ("Wrong result", "Broken convention")

#: Cases whose failure has another consequence than the other cases of the same check.
CASES = {
    "test_degenerate_batches_are_finite[empty]": "a batch that a filter emptied is NaN or fails",
    "test_degenerate_batches_are_finite[float16_extremes]": "half-precision embeddings overflow",
}


def register_plugin(config: pytest.Config) -> None:
    """Register the plugin in this run of pytest, once."""
    if not config.pluginmanager.has_plugin(NAME):
        config.pluginmanager.register(_Ranking(), NAME)


def described(cls: type, name: str) -> str:
    """Return the docstring of a check, from the first class of the MRO that has one."""
    checks = (vars(base).get(name.partition("[")[0]) for base in cls.__mro__)
    return next((check.__doc__ for check in checks if check and check.__doc__), name)


def consequence_of(cls: type, name: str) -> tuple[str, str]:
    """Return the severity of a failed check and its consequence.

    Both are in the last paragraph of the check's docstring, as in "Broken convention if it fails:
    the reducer is ignored."
    """
    paragraphs = described(cls, name).split("\n\n")
    level, _, consequence = " ".join(paragraphs[-1].split()).partition(" if it fails: ")
    if name in CASES:
        return LEVELS[1], CASES[name]
    # Without such a paragraph, the check's first one must do.
    return (level, consequence) if level in LEVELS else (LEVELS[0], paragraphs[0])


class _Ranking:
    """The plugin: it shortens the report of a failure, and adds a summary by severity."""

    def __init__(self) -> None:
        self._failed: dict[str, list[str]] = {level: [] for level in LEVELS}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Iterator[None]:
        """Store what a failed check means, and shorten its report unless --tb is given."""
        outcome: Any = yield
        report = outcome.get_result()
        cls: Any = getattr(item, "cls", None)
        # Only failed checks of a contract.
        if not (report.failed and call.excinfo and hasattr(cls, "known_failures")):
            return
        level, consequence = consequence_of(cls, item.name)
        self._failed[level].append(f"{report.nodeid.partition('::')[2]}: {consequence}")
        # From "\n +" on, pytest explains where the values of an assertion come from.
        if item.config.option.tbstyle == "auto":
            error = " ".join(call.excinfo.exconly().partition("\n +")[0].split())
            report.longrepr = f"{level}: {consequence}\n{error[:300]}"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for level, failed in self._failed.items():
            if failed:
                terminalreporter.section(f"{level}s: {len(failed)} (--tb=short shows where)")
                terminalreporter.line("\n".join(failed))
