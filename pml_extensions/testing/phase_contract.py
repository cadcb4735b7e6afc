"""The contract of losses whose values change between the phases of a training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from pml_extensions.testing._case import LossCase, call


class PhaseContract(LossCase):
    """What a loss with ``set_phase`` owes to a run that is stopped and resumed.

    To be added to another contract: ``class TestMyLoss(ProxyLossContract, PhaseContract)``.

    Attributes:
        phase: A second phase: new values by name, which change the loss.
        wrong_phase: A value that ``set_phase`` must refuse, by name.
    """

    wrong_phase: ClassVar[Mapping[str, object]]

    def test_a_phase_changes_the_loss_and_survives_a_checkpoint(self, tmp_path: Path) -> None:
        """The values are in the state dictionary, exact, and need no gradient.

        Wrong result: a resumed training continues in another phase.
        """
        x, labels = self.batch()
        loss = self.seeded_loss()
        before = call(loss, x, labels)
        loss.set_phase(**self.phase)
        # Saved first: some losses change their state with each batch.
        torch.save(loss.state_dict(), tmp_path / "loss.pt")
        after = call(loss, x, labels)
        assert not torch.isclose(after, before)
        resumed = self.make_loss().to(self.device)
        resumed.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
        torch.testing.assert_close(call(resumed, x, labels), after, rtol=0, atol=0)
        assert self.numbers(resumed) == self.phase
        held = [getattr(resumed, name) for name in self.phase]
        assert not any(isinstance(one, Tensor) and one.requires_grad for one in held)

    def test_unknown_phase_names_change_nothing(self) -> None:
        """The names before the unknown one are not set either, and the known ones are listed.

        Convention: a misspelt name of a phase is found too late.
        """
        loss = self.make_loss()
        before = self.numbers(loss)
        with pytest.raises(ValueError, match=next(iter(self.phase))):
            loss.set_phase(**self.phase, no_such_name=1.0)
        assert self.numbers(loss) == before

    def test_wrong_phase_values_are_refused(self) -> None:
        """The constructor's checks hold for a second phase as well.

        Convention: a wrong value of a phase is trained with.
        """
        loss = self.make_loss()
        for name, wrong in self.wrong_phase.items():
            before = self.numbers(loss)
            with pytest.raises(ValueError, match=name):
                loss.set_phase(**{name: wrong})
            assert self.numbers(loss) == before

    def test_changing_the_precision_of_the_module_keeps_the_phase(self) -> None:
        """``loss.bfloat16()`` rounds the weights, but not the values of the phase.

        Convention: loss.half() rounds the phase.
        """
        loss = self.make_loss()
        loss.set_phase(**self.phase)
        loss.bfloat16().float()
        assert self.numbers(loss) == self.phase

    def numbers(self, loss: Any) -> dict[str, float]:
        """Return the values by name, which are numbers or tensors of one."""
        return {name: float(getattr(loss, name)) for name in self.phase}
