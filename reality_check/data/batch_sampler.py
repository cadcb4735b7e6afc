"""Samplers of batches, class-balanced or not, that resume exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from reality_check.utils.errors import UsageError


class _Sampler:
    """Base class of samplers. Their state is a random generator and :class:`_Decks` by name."""

    def __init__(self, seed: int, **decks: _Decks) -> None:
        self._generator = np.random.default_rng(seed)
        self._decks = decks

    def state_dict(self) -> dict[str, Any]:
        """Return the state as ints, strings and tensors, which ``weights_only`` can load."""
        decks = {name: deck.state_dict() for name, deck in self._decks.items()}
        return {"generator": self._generator.bit_generator.state, **decks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where the sampler that returned ``state`` left off.

        Raises:
            UsageError: if the state is for another number of images or classes.
        """
        for name, deck in self._decks.items():
            deck.load_state_dict(state[name])
        self._generator.bit_generator.state = state["generator"]


class ClassBalancedSampler(_Sampler):
    """Batches of P classes with K images each, P = ``batch_size // samples_per_class``.

    A pass visits every class once in random order; a batch that spans two passes still contains no
    class twice. Within a class, every image is visited once before the class is reshuffled. A batch
    repeats an image only if its class has fewer than K images: then all of them come first, the
    repeats after them. All random numbers come from the sampler's own generator.

    Args:
        labels: int, shape (N,): the class of each image, as any integers.
        batch_size: number of images in a batch, a multiple of ``samples_per_class``.
        samples_per_class: K, the number of images per class in a batch.
        seed: non-negative seed of the random order.

    Attributes:
        classes_per_batch: P, the number of classes in a batch.

    Raises:
        UsageError: if the batch size is not a multiple of K, or needs more classes than there are.
    """

    def __init__(
        self, labels: np.ndarray, batch_size: int, samples_per_class: int, seed: int
    ) -> None:
        classes, ranks, counts = np.unique(labels, return_inverse=True, return_counts=True)
        _check_batch(batch_size, samples_per_class, len(classes))
        self.classes_per_batch = batch_size // samples_per_class
        self._samples_per_class = samples_per_class
        # One deck of all classes, and for each class a deck of its images, which sorting by class
        # puts one after the other.
        super().__init__(
            seed,
            classes=_Decks(np.arange(len(classes)), np.array([len(classes)])),
            images=_Decks(np.argsort(ranks, kind="stable"), counts),
        )

    def next_batch(self) -> np.ndarray:
        """Return the image indices of the next batch.

        Returns:
            int64, shape (batch_size,): K indices in a row for each class of the batch.
        """
        # The only deck of classes has the number 0.
        classes = self._decks["classes"].draw(0, self.classes_per_batch, self._generator)
        count = self._samples_per_class
        return self._decks["images"].draw_from_each(classes, count, self._generator)


class ShuffledSampler(_Sampler):
    """Batches of images in random order, without regard to their classes.

    A pass visits every image once; a batch that spans two passes still contains no image twice. The
    sampler resumes like :class:`ClassBalancedSampler`.

    Args:
        labels: int, shape (N,); only their number is used.
        batch_size: number of images in a batch.
        seed: non-negative seed of the random order.

    Attributes:
        classes_per_batch: None, because it differs from batch to batch.

    Raises:
        UsageError: if there are fewer images than a batch needs.
    """

    classes_per_batch = None

    def __init__(self, labels: np.ndarray, batch_size: int, seed: int) -> None:
        if not 1 <= batch_size <= len(labels):
            raise UsageError(
                f"batch_size={batch_size}, but it must be at least 1 and at most the number of "
                f"training images, {len(labels)}."
            )
        self._batch_size = batch_size
        super().__init__(seed, images=_Decks(np.arange(len(labels)), np.array([len(labels)])))

    def next_batch(self) -> np.ndarray:
        """Return the image indices of the next batch: int64, shape (batch_size,)."""
        return self._decks["images"].draw(0, self._batch_size, self._generator)


def build_sampler(
    labels: np.ndarray, batch_size: int, samples_per_class: int | None, seed: int
) -> ClassBalancedSampler | ShuffledSampler:
    """Return a class-balanced sampler, or a shuffled one if ``samples_per_class`` is None."""
    if samples_per_class is None:
        return ShuffledSampler(labels, batch_size, seed)
    return ClassBalancedSampler(labels, batch_size, samples_per_class, seed)


class _Decks:
    """Decks of cards, which are images or classes; each deck is dealt to its end, then reshuffled.

    Args:
        cards: the cards of all decks, one deck after the other.
        sizes: the number of cards of each deck.
    """

    def __init__(self, cards: np.ndarray, sizes: np.ndarray) -> None:
        self._cards = cards.astype(np.int64)
        self._sizes = sizes.astype(np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes  # index of each deck's first card
        self._dealt = self._sizes.copy()  # no card is left, so the first draw shuffles

    def draw(self, deck: int, count: int, generator: np.random.Generator) -> np.ndarray:
        """Deal ``count`` cards of one deck; cards repeat only if the deck has fewer."""
        size = int(self._sizes[deck])
        # The whole deck as often as it fits into ``count``, then the rest.
        lengths = [min(size, count - done) for done in range(0, count, size)]
        parts = [self._draw_distinct(deck, length, generator) for length in lengths]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def draw_from_each(
        self, decks: np.ndarray, count: int, generator: np.random.Generator
    ) -> np.ndarray:
        """Deal ``count`` cards of each of several distinct decks, as calls of :meth:`draw` do.

        Decks with enough cards left are dealt together, which is faster.
        """
        dealt = self._dealt[decks]
        has_enough = dealt + count <= self._sizes[decks]
        index = (self._starts[decks] + dealt)[:, None] + np.arange(count)
        drawn = self._cards[np.where(has_enough[:, None], index, 0)]  # 0 is replaced below
        self._dealt[decks[has_enough]] += count
        for row in np.flatnonzero(~has_enough):
            drawn[row] = self.draw(int(decks[row]), count, generator)
        return drawn.reshape(-1)

    def _draw_distinct(self, deck: int, count: int, generator: np.random.Generator) -> np.ndarray:
        """Deal ``count`` different cards of one deck, which is reshuffled when it ends."""
        start, size, dealt = int(self._starts[deck]), int(self._sizes[deck]), int(self._dealt[deck])
        cards = self._cards[start : start + size]
        remaining = cards[dealt : dealt + count].copy()
        missing = count - len(remaining)
        self._dealt[deck] = dealt + len(remaining)
        if not missing:
            return remaining
        generator.shuffle(cards)  # a view, so this shuffles the deck itself
        if len(remaining):  # cards that were not just dealt must come first
            first = np.flatnonzero(~np.isin(cards, remaining))[:missing]
            cards[:] = np.concatenate([cards[first], np.delete(cards, first)])
        self._dealt[deck] = missing
        return np.concatenate([remaining, cards[:missing]])

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {
            "cards": torch.from_numpy(self._cards.copy()),
            "dealt": torch.from_numpy(self._dealt.copy()),
        }

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        cards, dealt = state["cards"].numpy(), state["dealt"].numpy()
        if cards.shape != self._cards.shape or dealt.shape != self._dealt.shape:
            raise UsageError(
                f"The sampler's saved state is for {len(cards)} images or classes, but there are "
                f"{len(self._cards)} now; resume with the data set and split it was saved with."
            )
        self._cards, self._dealt = cards.copy(), dealt.copy()


def _check_batch(batch_size: int, samples_per_class: int, num_classes: int) -> None:
    """Raise UsageError unless batches of this size can be drawn from the classes."""
    if samples_per_class < 1 or batch_size < 1:
        raise UsageError(
            f"batch_size={batch_size} and samples_per_class={samples_per_class}, "
            "but both must be at least 1."
        )
    if batch_size % samples_per_class:
        below = batch_size - batch_size % samples_per_class
        allowed = [str(size) for size in (below, below + samples_per_class) if size]
        raise UsageError(
            f"batch_size={batch_size} is not a multiple of samples_per_class={samples_per_class}; "
            f"write protocol.training.batch_size: {' or '.join(allowed)}."
        )
    classes_per_batch = batch_size // samples_per_class
    if classes_per_batch > num_classes:
        divisors = (k for k in range(1, batch_size + 1) if batch_size % k == 0)
        smallest_samples_per_class = next(k for k in divisors if batch_size // k <= num_classes)
        raise UsageError(
            f"batch_size={batch_size} with samples_per_class={samples_per_class} needs "
            f"{classes_per_batch} classes, but there are {num_classes} to train on; write "
            f"protocol.training.batch_size: {num_classes * samples_per_class}, or set the method's "
            f"samples_per_class to {smallest_samples_per_class}."
        )
