"""The contract of every loss."""

from __future__ import annotations

from pml_extensions.testing._batches import BatchChecks
from pml_extensions.testing._precision import PrecisionChecks
from pml_extensions.testing._reduction import ReductionChecks
from pml_extensions.testing._training import TrainingChecks


class LossContract(ReductionChecks, PrecisionChecks, BatchChecks, TrainingChecks):
    """Checks that every loss must pass, whatever its equation.

    A subclass whose name starts with ``Test`` and that defines ``make_loss`` gets all the checks::

        class TestMyLoss(LossContract):
            def make_loss(self, **kwargs):
                return MyLoss(margin=0.2, **kwargs)

    Any subclass of PML's ``BaseMetricLossFunction`` can be tested: with any number of sub-losses,
    on samples, pairs or triplets.

    Attributes:
        num_classes: Labels of the test batches are 0..num_classes-1.
        embedding_size: Dimension of the test embeddings; must differ from ``num_classes``.
        device: Device on which the checks run.
        rtol: Relative tolerance between float32 results; None means torch's default.
        atol: Absolute tolerance; set both or none.
        low_precision_rtol: Relative tolerance between the value for float16 or bfloat16 embeddings
            and the value for the same embeddings in float32. 0 suits a loss that computes
            in float32.
        labels_required: Whether a call without labels must raise ValueError.
        supports_ref_emb: Whether the loss accepts reference embeddings; if not, a call with them
            must raise ValueError.
        compile_backend: Backend of ``torch.compile``; ``"aot_eager"`` needs no C++ compiler.
        fast_gradcheck: Whether gradients are compared with finite differences along random
            directions instead of entry by entry; use it if the full comparison takes seconds.
        exempt: Checks that do not apply to the loss, with the reason; they are skipped. For example
            ``{"test_samples_are_independent": "batch statistics"}``.
        known_failures: Checks that the loss should pass but does not, with the reason. They are
            expected to fail; a pass is an error, so that the entry gets removed.

    In both, ``"test_name"`` means all cases of a check and ``"test_name[case]"`` a single one.
    """
