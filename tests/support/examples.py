"""How many examples a property is tried on, and whether they are the same each time."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

#: What `settings` has unless a profile says otherwise.
_USUAL = 100


def register_profiles() -> None:
    """Profiles for `pytest --hypothesis-profile`: `fast`, the default, and `thorough`.

    `fast` draws the same examples each time, so that a change that touches nothing else fails
    nothing else; `thorough` draws others each time.
    """
    common = settings(
        max_examples=_USUAL,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],  # machines of CI may stand still
    )
    settings.register_profile("fast", common, derandomize=True)
    settings.register_profile("thorough", common, derandomize=False, print_blob=True)
    settings.load_profile("fast")


def examples(count: int) -> Any:
    """Decorate a property that the fast profile tries on ``count`` examples."""
    return settings(max_examples=count * settings.default.max_examples // _USUAL)
