"""The contract of every loss."""

from __future__ import annotations

from pml_extensions.testing._batches import BatchChecks
from pml_extensions.testing._precision import PrecisionChecks
from pml_extensions.testing._reduction import ReductionChecks
from pml_extensions.testing._training import TrainingChecks


class LossContract(ReductionChecks, PrecisionChecks, BatchChecks, TrainingChecks):
    """What each loss owes to PML and to its users, whatever its equation.

    A subclass whose name starts with ``Test`` and that has ``make_loss`` gets all the checks::

        class TestMyLoss(LossContract):
            def make_loss(self, **kwargs):
                return MyLoss(margin=0.2, **kwargs)

    Any subclass of PML's ``BaseMetricLossFunction`` can be put through them: with any number of
    sub-losses, on samples, pairs or triplets. The attributes are those of
    :class:`pml_extensions.testing._case.LossCase`.
    """
