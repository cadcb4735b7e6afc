"""Colour jitter of a batch, each image with its own factors and its own order."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pml_extensions.functional import without_autocast, without_tf32

#: ITU-R 601 weights of red, green and blue, with torchvision's digits.
LUMA = (0.2989, 0.587, 0.114)
#: The operations, as indices of the columns of ``factors`` and ``keys``.
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
#: The factors that change nothing.
NEUTRAL = np.asarray([1.0, 1.0, 1.0, 0.0])


def jitter(images: Tensor, factors: np.ndarray, keys: np.ndarray) -> Tensor:
    """Change brightness, contrast, saturation and hue as torchvision's ColorJitter defines them.

    Brightness, contrast and saturation blend the image with black, with its mean grey and with its
    greyscale version; hue turns the colour circle. Each blend is clamped to 0..255.

    Args:
        images: float32, shape (B, C, H, W), values 0..255, red before blue.
        factors: (B, 4): the share of the image in each of the three blends, and the turn of the hue
            in full circles. An operation is skipped if its factors are NEUTRAL for all images.
        keys: (B, 4): the operations with smaller keys come first.

    Returns:
        Images of the same shape. Saturation and hue leave images of one channel as they are.
    """
    active = (factors != NEUTRAL).any(axis=0)
    if images.shape[1] == 1:
        active[[SATURATION, HUE]] = False
    blends = np.flatnonzero(active[:HUE])
    order = blends[np.argsort(keys[:, blends], axis=1)]
    hue_ranks = (keys[:, blends] < keys[:, HUE:]).sum(axis=1)  # how many blends precede the hue
    # At each position, every image is blended once; its hue is turned at the position of its rank.
    for position in range(len(blends) + 1):
        if active[HUE]:
            images = _turn_hue_of(images, np.flatnonzero(hue_ranks == position), factors[:, HUE])
        if position < len(blends):
            operation = order[:, position]
            share = np.take_along_axis(factors, operation[:, None], 1)[:, 0]
            images = _blend(images, operation, share)
    return images


def _blend(images: Tensor, operation: np.ndarray, share: np.ndarray) -> Tensor:
    """Blend each image with black, with its mean grey or with its greyscale version.

    Args:
        operation: (B,), the operation of each image: brightness (black), contrast (mean grey) or
            saturation (greyscale).
        share: (B,), the share of the image in the blend.
    """
    channels = images.shape[1]
    luma = np.asarray(LUMA) if channels == 3 else np.ones(1)
    # Rows 0 to C - 1 map the channels of a pixel; row C maps the mean colour of the image to an
    # offset, which all channels get.
    maps = np.zeros((len(images), channels + 1, channels), dtype=np.float32)
    maps[:, :channels] = share[:, None, None] * np.eye(channels)
    maps[:, :channels] += ((1 - share) * (operation == SATURATION))[:, None, None] * luma
    maps[:, channels] = ((1 - share) * (operation == CONTRAST))[:, None] * luma
    matrices = torch.from_numpy(maps).to(images.device, non_blocking=True)
    flat = images.flatten(2)
    with without_autocast(images), without_tf32(images.device):
        offset = torch.bmm(matrices[:, channels:], flat.mean(dim=2)[:, :, None])
        mixed = torch.baddbmm(offset.expand(-1, channels, 1), matrices[:, :channels], flat)
    return mixed.clamp_(0, 255).view_as(images)


def _turn_hue_of(images: Tensor, rows: np.ndarray, turns: np.ndarray) -> Tensor:
    """Turn the hue of the images at the indices ``rows``, each by its entry of ``turns`` (B,)."""
    if not len(rows):
        return images
    index = torch.from_numpy(rows).to(images.device, non_blocking=True)
    return images.index_copy(0, index, turn_hue(images[index], turns[rows]))


def turn_hue(images: Tensor, turns: np.ndarray) -> Tensor:
    """Turn the hue of images (B, 3, H, W) by ``turns`` (B,) full circles, as in HSV."""
    # The hue is computed in sixths of the circle.
    turn = torch.from_numpy((6 * turns).astype(np.float32)).to(images.device, non_blocking=True)
    red, green, blue = images.unbind(1)
    value = images.amax(dim=1)
    chroma = value - images.amin(dim=1)
    inverse_chroma = chroma.clamp(min=1e-6).reciprocal_()
    hue = torch.where(
        value == red,
        (green - blue) * inverse_chroma,
        torch.where(
            value == green, (blue - red) * inverse_chroma + 2, (red - green) * inverse_chroma + 4
        ),
    )
    hue += turn[:, None, None]
    # With k = (n + hue) mod 6 and n = 5, 3, 1 for red, green and blue, the new channel is
    # value - chroma * clamp(min(k, 4 - k), 0, 1). Here k is `position`, and min(k, 4 - k) is
    # computed as 2 - |k - 2|.
    position = hue[:, None] + torch.arange(5, 0, -2, device=images.device)[:, None, None]
    position -= 6 * (position / 6).floor_()
    fall = position.sub_(2).abs_().neg_().add_(2).clamp_(0, 1)
    return torch.addcmul(value[:, None], chroma[:, None], fall, value=-1)


def to_grey(images: Tensor, rows: np.ndarray) -> Tensor:
    """Convert the RGB images at the indices ``rows`` to greyscale, repeated over all channels."""
    if images.shape[1] == 1 or not len(rows):
        return images
    index = torch.from_numpy(rows).to(images.device, non_blocking=True)
    red, green, blue = images[index].unbind(1)
    grey = red * LUMA[0] + green * LUMA[1] + blue * LUMA[2]
    return images.index_copy(0, index, grey[:, None].expand(-1, 3, -1, -1))
