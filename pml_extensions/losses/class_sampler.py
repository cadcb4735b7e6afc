"""Class subsampling for proxy losses with very many classes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

import torch
from torch import Tensor

from pml_extensions.functional.class_sampling import gather_rows, presence, sample_classes

from .._shared.checks import one_of, share
from .._shared.numerics import is_recomputing, world_size

RatioOf = Literal["all", "negatives"]


class ClassSampler(torch.nn.Module):
    """Samples the classes of a training step: the classes of the batch and random others.

    "Classification is a Strong Baseline for Deep Metric Learning", section 4.3. Every call draws
    new classes. The seed (torch's at construction) and the number of the draw are buffers, so a
    resumed training continues the sequence. A forward pass that ``torch.utils.checkpoint``
    recomputes gets the same classes. With torch.distributed, all ranks keep the classes of all
    batches and draw the same other classes.

    The number of kept classes is the size of a tensor, so the host must know it. If it depends on
    the number of classes in the batch, counting them synchronises with the GPU, unless
    ``classes_per_step`` is set.

    Attributes:
        classes_per_step: Number of distinct classes in every step, over all ranks, if it is
            constant, as with class-balanced batches; None counts them.

    Args:
        ratio: Fraction of the C classes to keep; 1 keeps all.
        ratio_of: ``"all"`` keeps ceil(ratio C) classes, but never fewer than the batch has;
            ``"negatives"`` keeps the P classes of the batch and ceil(ratio (C - P)) others.
        sparse_gradients: Whether class-wise parameters get sparse gradients of the kept rows, for
            SGD without weight decay, SparseAdam or Adagrad; needs a ratio below 1.

    Raises:
        ValueError: An argument is out of range.
    """

    seed: Tensor
    draw: Tensor

    def __init__(
        self, ratio: float, ratio_of: RatioOf = "all", sparse_gradients: bool = False
    ) -> None:
        super().__init__()
        self.ratio = share("ratio", ratio)
        # Numerator and denominator: in floats ceil(0.07 x 100) is 8. torch.compile can trace
        # integers, but no Fraction; they are limited so that products with numbers of classes fit
        # into 64 bits.
        self._exact_ratio = Fraction(repr(self.ratio)).limit_denominator(10**11).as_integer_ratio()
        self.classes_per_step: int | None = None
        self.ratio_of = one_of("ratio_of", ratio_of, ("all", "negatives"))
        self.sparse_gradients = one_of("sparse_gradients", sparse_gradients, (True, False))
        if self.sparse_gradients and self.ratio == 1:
            raise ValueError(
                "sparse_gradients=True needs a ratio below 1: with all classes every row has a "
                "gradient."
            )
        # No random number is drawn, so a loss has the same initial weights without a sampler.
        self.register_buffer("seed", torch.tensor(torch.initial_seed() % 2**62))
        self.register_buffer("draw", torch.zeros((), dtype=torch.int64))
        # [labels, draw number, last backward pass that recomputed the call] of recent calls: 64 are
        # more than one backward pass recomputes.
        self._recent: deque[list[Any]] = deque(maxlen=64)

    def fewest(self, num_classes: int) -> int:
        """Return the smallest number of classes in a step, reached by a batch of one class."""
        if self.ratio_of == "all":
            return max(1, self._kept_share(num_classes))
        return self._with_negatives(1, num_classes)

    def forward(
        self, labels: Tensor, parameters: Sequence[Tensor]
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Sample K classes and return the batch's labels among them and their parameter rows.

        Args:
            labels: Labels of the batch, shape (N,), values 0..C-1.
            parameters: Class-wise parameters, shape (C, ...).

        Returns:
            Labels renumbered to 0..K-1, shape (N,), and rows of each parameter, shape (K, ...).
        """
        if self.ratio == 1:
            return labels, parameters
        kept = self.sample(labels, len(parameters[0]))
        rows = [gather_rows(parameter, kept, self.sparse_gradients) for parameter in parameters]
        return torch.searchsorted(kept, labels), rows

    @torch.no_grad()
    def sample(self, labels: Tensor, num_classes: int) -> Tensor:
        """Return the classes kept in this step.

        Args:
            labels: Labels of the batch, shape (N,), values 0..C-1.
            num_classes: Number of classes C.

        Returns:
            Distinct classes in ascending order, int64, shape (K,).
        """
        present = presence(labels, num_classes)
        seed_and_draw = torch.stack((self.seed, self._draw_number(labels))).to(labels.device)
        ranks = world_size()
        if ranks > 1:  # classes present on any rank, and one seed and draw number for all ranks
            torch.distributed.all_reduce(present, torch.distributed.ReduceOp.MAX)
            torch.distributed.all_reduce(seed_and_draw, torch.distributed.ReduceOp.MAX)
        # The second argument bounds the number of present classes, which other ranks may add to.
        num_kept = self._num_kept(present, len(labels) if ranks == 1 else num_classes)
        return sample_classes(present, num_kept, *seed_and_draw.unbind())

    def _draw_number(self, labels: Tensor) -> Tensor:
        """Return the number of this draw; a recomputed call gets the original number."""
        if not is_recomputing():
            self.draw += 1
            if not torch.compiler.is_compiling():
                self._recent.append([labels, self.draw.clone(), None])
            return self.draw
        # A recomputed call gets the same label tensor (int64 labels are not copied). If several
        # calls shared that tensor, a backward pass recomputes the last call first.
        backward_id = torch._C._current_graph_task_id()
        for call in reversed(self._recent):
            call_labels, draw, last_backward_id = call
            if call_labels.data_ptr() == labels.data_ptr() and last_backward_id != backward_id:
                call[2] = backward_id
                return draw
        # A call that is too old to be found, or whose labels were copied, gets the latest number.
        return self.draw

    def _num_kept(self, present: Tensor, max_present: int) -> int:
        """Return the number K of classes in this step; at most ``max_present`` are present."""
        if self.ratio_of == "all":
            kept = self._kept_share(len(present))
            # Counting the present classes synchronises with a GPU, so it is avoided if possible.
            return kept if kept >= max_present else max(kept, self._num_present(present))
        return self._with_negatives(self._num_present(present), len(present))

    def _num_present(self, present: Tensor) -> int:
        """Return the number of classes that are present."""
        expected = self.classes_per_step
        if expected is None:
            return int(present.sum())
        # With a wrong number, the class of some sample would be missing.
        torch._assert_async(present.sum() == expected, f"not {expected} classes in this step")
        return expected

    def _with_negatives(self, num_present: int, num_classes: int) -> int:
        """Return the number of classes in the batch plus the number of sampled others."""
        return num_present + self._kept_share(num_classes - num_present)

    def _kept_share(self, num_classes: int) -> int:
        """Return ceil(ratio x num_classes)."""
        numerator, denominator = self._exact_ratio
        return -(-numerator * num_classes // denominator)
