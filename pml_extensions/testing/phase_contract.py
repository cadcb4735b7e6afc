"""The contract of losses whose hyper-parameters change between the phases of a training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from pml_extensions.testing._case import LossCase, call


class PhaseContract(LossCase):
    """Checks of ``set_phase``, and of checkpoints after it.

    Use it with another contract: ``class TestMyLoss(ProxyLossContract, PhaseContract)``.

    Attributes:
        phase: Arguments of ``set_phase`` that change the value of the loss.
        wrong_phase: For each hyper-parameter, a value for which ``set_phase`` must raise
            ValueError.
    """

    wrong_phase: ClassVar[Mapping[str, object]]

    def test_a_phase_changes_the_loss_and_survives_a_checkpoint(self, tmp_path: Path) -> None:
        """The hyper-parameters are saved exactly in the state dictionary and need no gradient.

        Wrong result if it fails: resumed training continues in another phase.
        """
        x, labels = self.batch()
        loss = self.seeded_loss()
        before = call(loss, x, labels)
        loss.set_phase(**self.phase)
        # Saved before the call, because some losses change their state with each batch.
        torch.save(loss.state_dict(), tmp_path / "loss.pt")
        after = call(loss, x, labels)
        assert not torch.isclose(after, before)
        resumed = self.make_loss().to(self.device)
        resumed.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
        torch.testing.assert_close(call(resumed, x, labels), after, rtol=0, atol=0)
        assert self.phase_values(resumed) == self.phase
        values = [getattr(resumed, name) for name in self.phase]
        assert not any(isinstance(value, Tensor) and value.requires_grad for value in values)

    def test_unknown_phase_names_change_nothing(self) -> None:
        """An unknown name raises an error that lists the known names, and nothing is changed.

        Broken convention if it fails: a misspelt name in set_phase goes unnoticed.
        """
        loss = self.make_loss()
        before = self.phase_values(loss)
        # The error names all, so the first one is enough.
        with pytest.raises(ValueError, match=next(iter(self.phase))):
            loss.set_phase(**self.phase, no_such_name=1.0)
        assert self.phase_values(loss) == before

    def test_wrong_phase_values_are_refused(self) -> None:
        """``set_phase`` raises ValueError for a value that is not allowed.

        Broken convention if it fails: training continues with an invalid value.
        """
        loss = self.make_loss()
        for name, wrong in self.wrong_phase.items():
            before = self.phase_values(loss)
            with pytest.raises(ValueError, match=name):
                loss.set_phase(**{name: wrong})
            assert self.phase_values(loss) == before

    def test_changing_the_precision_of_the_module_keeps_the_phase(self) -> None:
        """``loss.bfloat16()`` rounds the weights, but not the hyper-parameters.

        Broken convention if it fails: loss.half() rounds the hyper-parameters.
        """
        loss = self.make_loss()
        loss.set_phase(**self.phase)
        loss.bfloat16().float()
        assert self.phase_values(loss) == self.phase

    def phase_values(self, loss: Any) -> dict[str, float]:
        """Return the current values of the hyper-parameters in ``phase``, by name."""
        return {name: float(getattr(loss, name)) for name in self.phase}
