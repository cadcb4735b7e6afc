"""Contract tests for losses: subclass a contract and define ``make_loss`` to get all its tests.

Needs pytest. See ``docs/testing_a_loss.md``.
"""

import pytest

# Must come before the imports, so that failed assertions show the compared values.
for name in (
    *("_batches", "_case", "_precision", "_reduction", "_training"),
    *("phase_contract", "proxy_loss_contract"),
):
    pytest.register_assert_rewrite(f"{__name__}.{name}")

from pml_extensions.testing.loss_contract import LossContract  # noqa: E402
from pml_extensions.testing.phase_contract import PhaseContract  # noqa: E402
from pml_extensions.testing.proxy_loss_contract import ProxyLossContract  # noqa: E402

__all__ = ["LossContract", "PhaseContract", "ProxyLossContract"]
