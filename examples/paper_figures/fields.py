"""Losses and gradients of single embeddings in the plane, by autograd."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from pytorch_metric_learning.reducers import DoNothingReducer
from torch import Tensor

from pml_extensions.functional import Warp
from pml_extensions.losses import WarpedSoftmaxLoss


class LossField(NamedTuple):
    """The loss of one embedding, shape (N,), and its gradient, shape (N, 2), at each of N places.

    The gradient is autograd's: that of the warped softmax is not the derivative of its value.
    """

    losses: Tensor
    gradients: Tensor


def warped_softmax(
    proxies: Tensor, own_warp: Warp, other_warp: Warp | None = None
) -> WarpedSoftmaxLoss:
    """Return the loss with fixed proxies, in float64 and scale 1.

    Args:
        proxies: Shape (C, 2).
        own_warp: Function f1 of the distance to the own proxy.
        other_warp: Function f2 of the others; None leaves them as they are.
    """
    loss = WarpedSoftmaxLoss(
        len(proxies), 2, own_warp=own_warp, other_warp=other_warp, reducer=DoNothingReducer()
    )
    loss.proxies.data = proxies.double()
    return loss


def loss_field(loss: WarpedSoftmaxLoss, points: Tensor) -> LossField:
    """Return the loss of an embedding of class 0 at each of ``places``, and its gradient.

    Args:
        loss: With a reducer that keeps the loss of each sample.
        places: Shape (N, 2).
    """
    e = points.detach().double().requires_grad_()
    losses = loss(e, torch.zeros(len(e), dtype=torch.int64))["loss"]["losses"]
    (gradients,) = torch.autograd.grad(losses.sum(), e)
    return LossField(losses.detach(), gradients)


def grid(x: np.ndarray, y: np.ndarray) -> Tensor:
    """Return the places of a grid row by row, shape (len(y) * len(x), 2)."""
    across, up = np.meshgrid(x, y)
    return torch.from_numpy(np.stack([across.ravel(), up.ravel()], axis=1))
