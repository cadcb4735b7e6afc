"""Published weights of trunks, and the interface of their sources."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from reality_check.config.classes import one_line
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.utils.errors import UsageError

#: What most published RGB weights were trained with.
IMAGENET = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
#: What networks from scratch get: values from -1 to 1.
FROM_SCRATCH = Preprocessing()


@dataclass(frozen=True)
class PublishedWeights:
    """Weights that somebody published for a trunk.

    Attributes:
        identity: their name and version, for fingerprints.
        preprocessing: the input that they were trained with.
        url: where to fetch the file by hand; None where that is not known.
        folder: where such a file is looked for under its own name; None where only a path helps.
        load: reads the weights as a ``state_dict`` of the trunk, from the network if need be.
        crop_size: side of the square images that they were evaluated with, where that is known.
    """

    identity: str
    preprocessing: Preprocessing
    url: str | None
    folder: str | None
    load: Callable[[], Mapping[str, Tensor]]
    crop_size: int | None = None


class TrunkSource(Protocol):
    """One trunk by name, from one library.

    Attributes:
        title: what messages call it.
        file_preprocessing: the input that weights from a local file are taken to be trained with.
    """

    title: str

    @property
    def file_preprocessing(self) -> Preprocessing: ...

    def build(self, arguments: Mapping[str, Any], image_shape: tuple[int, int, int]) -> nn.Module:
        """Build the trunk for images of (H, W, C), with random weights."""
        ...

    def published(self, weights: str, arguments: Mapping[str, Any]) -> PublishedWeights:
        """Return the weights of that name; raise UsageError if there are none."""
        ...


def load_published(published: PublishedWeights, title: str) -> Mapping[str, Tensor]:
    """Read published weights, from the network if need be; torch's generator is untouched.

    Raises:
        UsageError: they cannot be downloaded; says what to fetch by hand and where to put it.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            return published.load()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"{title}: the weights {published.identity} could not be downloaded "
            f"({type(error).__name__}: {one_line(error, 160)}); {_by_hand(published)}."
        ) from error


def _by_hand(published: PublishedWeights) -> str:
    if published.url is None:
        return "write weights: /a/folder/FILE with a file of them"
    name = published.url.rpartition("/")[2]
    instead = f"put it as {name} into {published.folder}, or " if published.folder else ""
    return f"download {published.url} yourself and {instead}write weights: /a/folder/{name}"


def refuse_arguments(title: str, arguments: Mapping[str, Any], fixed: Sequence[str]) -> None:
    """Refuse arguments that decide what is cut off, or loaded, anyway.

    Raises:
        UsageError: one of the fixed arguments is given.
    """
    for key in fixed:
        if key in arguments:
            raise UsageError(f"{title}: {key!r} is set by the harness; remove it from arguments.")


def import_library(name: str, title: str) -> Any:
    """Import torchvision or timm.

    Raises:
        UsageError: it is not installed, or does not fit the installed torch.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{title} needs {error.name or name}, which is not installed; run pip install "
            "'pml-extensions[vision]', or choose a trunk that needs no library (conv4, conv4_pool, "
            "bn_inception)."
        ) from None
    except (ImportError, RuntimeError, AttributeError, OSError) as error:
        # torchvision raises these beside a torch that it was not built for.
        raise UsageError(
            f"{title} needs {name}, which is installed but cannot be imported with torch "
            f"{torch.__version__} ({one_line(error, 120)}); install the {name} made for this torch."
        ) from error
