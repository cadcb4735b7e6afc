"""What both figures of NormSoftmax share: training on Omniglot and recall on unseen classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from examples.paper_figures.images import Images, many_classes
from examples.paper_figures.networks import NormalizedConv4
from examples.paper_figures.training import Budget, Phase, Settings, Training, train
from pml_extensions.evaluation import RetrievalMetrics, expected_hamming_recall
from pml_extensions.losses import ClassSampler, NormalizedSoftmaxLoss


@dataclass(frozen=True)
class RetrievalBudget:
    """How much is trained for a picture of recalls.

    Args:
        test_classes: of the unseen classes, how many are searched.
        width: of :class:`NormalizedConv4`.
        epochs: passes over the training images.
        seeds: trainings of each kind.
        batch_size: images of a batch.
        each: of each class in it.
        lr: of Adam, for the network; proxies learn ten times faster.
    """

    test_classes: int
    width: int
    epochs: int
    seeds: int
    batch_size: int = 75
    each: int = 5
    lr: float = 1e-3


RETRIEVAL_BUDGETS: dict[Budget, RetrievalBudget] = {
    "quick": RetrievalBudget(24, 4, 1, 2, 20, 2),
    "default": RetrievalBudget(200, 32, 3, 3),
    "full": RetrievalBudget(659, 64, 40, 5),
}


@dataclass(frozen=True)
class Retrieval:
    """Images, budget and settings of one figure.

    Args:
        train: images of the classes that train.
        test: images of other classes.
        budget: how much is trained.
        settings: of the figure.
    """

    train: Images
    test: Images
    budget: RetrievalBudget
    settings: Settings

    @classmethod
    def of(cls, settings: Settings) -> Retrieval:
        """Read the images that the settings ask for."""
        budget = RETRIEVAL_BUDGETS[settings.budget]
        train_images, test_images = many_classes(settings.budget == "quick")
        searched = int((test_images.labels < budget.test_classes).sum())
        return cls(train_images, test_images.first(searched), budget, settings)

    def embeddings(self, title: str, size: int, seed: int, ratio: float = 1.0) -> Tensor:
        """Train a network and embed the test images.

        Args:
            title: for lines of progress.
            size: of the embeddings.
            seed: of weights and batches.
            ratio: share of the classes that a training step compares with.
        """
        budget = self.budget
        training = Training(
            f"{title}, seed {seed}",
            NormalizedConv4,
            _sampled_softmax,
            size,
            (Phase(budget.epochs, budget.lr, 10 * budget.lr),),
            {"width": budget.width},
            {"ratio": ratio},
            seed,
            budget.batch_size,
            budget.each,
        )
        return train(training, self.train, self.settings).embed(self.test)

    def recall(self, embeddings: Tensor, ks: Sequence[int]) -> dict[int, float]:
        """Return Recall@K of the test images among themselves by cosine, in percent."""
        scores = RetrievalMetrics(metrics=(), recall_at=ks)(embeddings, self.test.labels)
        return {k: 100 * scores[f"recall_at_{k}"] for k in ks}

    def binary_recall(self, embeddings: Tensor) -> float:
        """Return Recall@1 by Hamming distance of the signs, averaged over ties, in percent."""
        return 100 * expected_hamming_recall(embeddings, self.test.labels, [1])["recall_at_1"]

    def described(self) -> str:
        """Say what was trained and measured, for captions."""
        budget = self.budget
        return (
            f"{self.train.name}: {self.train.num_classes:,} classes with {len(self.train):,} "
            f"images train, {self.test.num_classes} other classes with {len(self.test):,} images "
            f"are searched. Four convolutions of width {budget.width} from scratch, LayerNorm, "
            "linear layer without bias; NormSoftmax, temperature 0.05; Adam, learning rate "
            f"{budget.lr:g} ({10 * budget.lr:g} for proxies), {budget.epochs} epochs of batches of "
            f"{budget.batch_size} ({budget.each} a class), fixed beforehand: nothing is selected. "
            f"{budget.seeds} seeds: dots; means with 95 % t-intervals over seeds"
        )


def random_rotation(size: int, seed: int) -> Tensor:
    """Return a random orthogonal matrix, float32 of shape (size, size)."""
    generator = torch.Generator().manual_seed(seed)
    q, r = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    return (q * r.diagonal().sign()).float()


def _sampled_softmax(num_classes: int, embedding_size: int, ratio: float) -> NormalizedSoftmaxLoss:
    return NormalizedSoftmaxLoss(num_classes, embedding_size, class_sampler=ClassSampler(ratio))
