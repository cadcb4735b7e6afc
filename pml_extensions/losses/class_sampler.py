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
    """Draws the classes of a training step: those of the batch and a random part of the others.

    "Classification is a Strong Baseline for Deep Metric Learning", section 4.3. Every call draws
    anew; the seed (that of torch at construction) and the number of the draw are buffers, so that a
    checkpoint continues the sequence. ``torch.utils.checkpoint`` gets the same classes again.
    When torch.distributed runs, all ranks keep the classes of all ranks and draw the same others.

    How many classes are kept is a shape, which the host has to know. Where it depends on how many
    the batch has, counting these waits for the GPU, unless ``classes_per_step`` is set.

    Attributes:
        classes_per_step: How many classes there are in every step, of all ranks, where that is
            known, as with class-balanced batches; None: they are counted.

    Args:
        ratio: Share of the C classes that is kept; 1 keeps all.
        ratio_of: ``"all"`` keeps ceil(ratio C) classes in total, or those of the batch if these
            are more; ``"negatives"`` keeps ceil(ratio (C - P)) beside the P classes of the batch.
        sparse_gradients: Give class-wise parameters sparse gradients that hold the kept rows only,
            for SGD without weight decay, SparseAdam or Adagrad; needs a ratio below 1.

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
        # As it is written, where floats make ceil(0.07 x 100) an 8; torch.compile follows integers.
        self._share_of = Fraction(repr(self.ratio)).limit_denominator(10**11).as_integer_ratio()
        self.classes_per_step: int | None = None
        self.ratio_of = one_of("ratio_of", ratio_of, ("all", "negatives"))
        self.sparse_gradients = one_of("sparse_gradients", sparse_gradients, (True, False))
        if self.sparse_gradients and self.ratio == 1:
            raise ValueError(
                "sparse_gradients=True needs a ratio below 1: with all classes every row has a "
                "gradient."
            )
        # Not a random number: with and without sampling a loss starts with the same weights.
        self.register_buffer("seed", torch.tensor(torch.initial_seed() % 2**62))
        self.register_buffer("draw", torch.zeros((), dtype=torch.int64))
        # Of as many calls as one backward pass may be of.
        self._recent: deque[list[Any]] = deque(maxlen=64)

    def fewest(self, num_classes: int) -> int:
        """Return how many classes are kept at least, in the step of a batch of one class."""
        if self.ratio_of == "all":
            return max(1, self._share(num_classes))
        return self._beside(1, num_classes)

    def forward(
        self, labels: Tensor, parameters: Sequence[Tensor]
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Draw classes, and return each label's place among them and their rows of parameters.

        Args:
            labels: Classes of the batch, shape (N,), values 0..C-1.
            parameters: Class-wise parameters, shape (C, ...).

        Returns:
            Places, shape (N,), values 0..K-1, and rows, shape (K, ...), of K classes.
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
            labels: Classes of the batch, shape (N,), values 0..C-1.
            num_classes: C.

        Returns:
            Distinct classes in ascending order, int64, shape (K,).
        """
        present = presence(labels, num_classes)
        state = torch.stack((self.seed, self._number(labels))).to(labels.device)
        ranks = world_size()
        if ranks > 1:
            torch.distributed.all_reduce(present, torch.distributed.ReduceOp.MAX)
            torch.distributed.all_reduce(state, torch.distributed.ReduceOp.MAX)
        kept = self._num_kept(present, len(labels) if ranks == 1 else num_classes)
        return sample_classes(present, kept, *state.unbind())

    def _number(self, labels: Tensor) -> Tensor:
        """Return the number of this draw, of a recomputed one that of the first time."""
        if not is_recomputing():
            self.draw += 1
            if not torch.compiler.is_compiling():
                self._recent.append([labels, self.draw.clone(), None])
            return self.draw
        # The graph keeps the labels in their place, unless they were no int64; of several calls
        # with them a backward pass recomputes the last one first.
        now = torch._C._current_graph_task_id()
        for call in reversed(self._recent):
            if call[0].data_ptr() == labels.data_ptr() and call[2] != now:
                call[2] = now
                return call[1]
        return self.draw

    def _num_kept(self, present: Tensor, most_present: int) -> int:
        if self.ratio_of == "all":
            kept = self._share(len(present))
            # Counting the classes of the batch waits for the device, so only where it matters.
            return kept if kept >= most_present else max(kept, self._num_present(present))
        return self._beside(self._num_present(present), len(present))

    def _num_present(self, present: Tensor) -> int:
        known = self.classes_per_step
        if known is None:
            return int(present.sum())
        # Fewer would make a sample's class one that is not there.
        torch._assert_async(present.sum() == known, f"not {known} classes in this step")
        return known

    def _beside(self, present: int, num_classes: int) -> int:
        return present + self._share(num_classes - present)

    def _share(self, classes: int) -> int:
        """Return ceil(ratio x classes)."""
        numerator, denominator = self._share_of
        return -(-numerator * classes // denominator)
