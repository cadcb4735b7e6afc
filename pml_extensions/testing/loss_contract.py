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
    sub-losses, on samples, pairs or triplets.

    Attributes:
        num_classes: Labels of the test batches are 0..num_classes-1.
        embedding_size: Size of the test embeddings; must differ from ``num_classes``.
        device: Where the checks run.
        rtol: Relative tolerance between float32 results; None: that of ``torch.testing``.
        atol: Absolute tolerance; give both or none.
        low_precision_rtol: Relative tolerance between the value on float16 or bfloat16 embeddings
            and on the same numbers as float32. A loss that computes in float32 has none.
        labels_required: Whether a call without labels must be refused.
        supports_ref_emb: Whether the loss compares with reference embeddings; if not, a call
            with them must be refused.
        compile_backend: Backend of ``torch.compile``; ``"aot_eager"`` needs no C++ compiler.
        fast_gradcheck: Whether gradients are compared with finite differences along random
            directions instead of entry by entry; of use where that takes seconds.
        exempt: Checks that the loss cannot pass by its nature, with the reason: they are skipped.
            For example ``{"test_samples_are_independent": "batch statistics"}``.
        known_failures: Checks that it should pass and does not, with the reason: they are expected
            to fail, and to pass is an error, so that the entry is removed in time.

    In both, ``"test_name"`` is the whole check and ``"test_name[case]"`` one of its cases.
    """
