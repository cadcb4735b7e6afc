"""What a failed check costs, and the failures of a run in the order of that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

NAME = "pml_extensions.testing"
#: How bad a failure is: what is learned is wrong; or a habit of PML or PyTorch is not kept.
LEVELS = ("Wrong result", "Convention")

#: Cases that cost something else than the rest of their check.
CASES = {
    "test_degenerate_batches_are_finite[empty]": "a batch that a filter emptied is NaN or fails",
    "test_degenerate_batches_are_finite[float16_extremes]": "half-precision embeddings overflow",
}


def rank_failures(config: pytest.Config) -> None:
    """Have this run of pytest say what failed checks cost, from the first check on."""
    if not config.pluginmanager.has_plugin(NAME):
        config.pluginmanager.register(_Ranking(), NAME)


def described(cls: type, name: str) -> str:
    """The docstring of a check, of the nearest class that has one."""
    checks = (vars(base).get(name.partition("[")[0]) for base in cls.__mro__)
    return next((check.__doc__ for check in checks if check and check.__doc__), name)


def cost_of(cls: type, name: str) -> tuple[str, str]:
    """The level of a check, and what its failure costs: the last paragraph of its docstring."""
    paragraphs = described(cls, name).split("\n\n")
    level, _, cost = " ".join(paragraphs[-1].split()).partition(": ")
    if name in CASES:
        return LEVELS[1], CASES[name]
    return (level, cost) if level in LEVELS else (LEVELS[0], paragraphs[0])


class _Ranking:
    def __init__(self) -> None:
        self._failed: dict[str, list[str]] = {level: [] for level in LEVELS}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Iterator[None]:
        outcome: Any = yield
        report = outcome.get_result()
        cls: Any = getattr(item, "cls", None)
        if not (report.failed and call.excinfo and hasattr(cls, "known_failures")):
            return
        level, cost = cost_of(cls, item.name)
        self._failed[level].append(f"{report.nodeid.partition('::')[2]}: {cost}")
        if item.config.option.tbstyle == "auto":
            said = " ".join(call.excinfo.exconly().partition("\n +")[0].split())
            report.longrepr = f"{level}: {cost}\n{said[:300]}"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for level, failed in self._failed.items():
            if failed:
                terminalreporter.section(f"{level}s: {len(failed)} (--tb=short shows where)")
                terminalreporter.line("\n".join(failed))
