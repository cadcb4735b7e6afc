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

#: The preprocessing that most published RGB weights were trained with.
IMAGENET = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
#: The preprocessing of networks that are trained from scratch: values from -1 to 1.
FROM_SCRATCH = Preprocessing()
#: The names of the weights that belong to the name of a trunk.
PUBLISHED = ("imagenet", "published")


@dataclass(frozen=True)
class PublishedWeights:
    """Weights that somebody published for a trunk.

    Attributes:
        identity: name and version of the weights, for fingerprints.
        preprocessing: preprocessing of the input that the weights were trained with; None if it is
            not known.
        url: address to download the file from by hand; None if unknown.
        folder: where the library looks for the file under its own name; None if nowhere.
        load: returns the weights as a ``state_dict`` of the trunk, and downloads them if necessary.
        crop_size: side of the square images that the weights were evaluated with; None if unknown.
    """

    identity: str
    preprocessing: Preprocessing
    load: Callable[[], Mapping[str, Tensor]]
    url: str | None = None
    folder: str | None = None
    crop_size: int | None = None


class TrunkSource(Protocol):
    """A trunk by name, from one library.

    Attributes:
        title: what messages call the trunk.
        file_preprocessing: the preprocessing that is assumed for weights from a local file.
    """

    title: str

    @property
    def file_preprocessing(self) -> Preprocessing: ...

    def build(self, arguments: Mapping[str, Any], image_shape: tuple[int, int, int]) -> nn.Module:
        """Build the trunk for images of (H, W, C), with random weights."""
        ...

    def published(self, weights: str, arguments: Mapping[str, Any]) -> PublishedWeights:
        """Return the weights named ``weights``; raise UsageError if they do not exist."""
        ...


def load_published(published: PublishedWeights, title: str) -> Mapping[str, Tensor]:
    """Read published weights, downloaded if necessary; torch's generator is untouched.

    Raises:
        UsageError: if the weights cannot be downloaded; the message says how to do it by hand.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            return published.load()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"{title}: the weights {published.identity} could not be downloaded "
            f"({type(error).__name__}: {one_line(error, 160)}); {_download_advice(published)}."
        ) from error


def _download_advice(published: PublishedWeights) -> str:
    if published.url is None:
        return "write weights: /a/folder/FILE with a file of them"
    name = published.url.rpartition("/")[2]
    target = f"put it as {name} into {published.folder}, or " if published.folder else ""
    return f"download {published.url} yourself and {target}write weights: /a/folder/{name}"


def refuse_arguments(title: str, arguments: Mapping[str, Any], fixed: Sequence[str]) -> None:
    """Refuse arguments that are not the user's to choose.

    Raises:
        UsageError: if one of the fixed arguments is given.
    """
    for key in fixed:
        if key in arguments:
            raise UsageError(f"{title}: {key!r} is set by the harness; remove it from arguments.")


def import_library(name: str, title: str, extra: str = "vision") -> Any:
    """Import a library of trunks, which the ``extra`` of this package installs.

    Raises:
        UsageError: if it is not installed, or does not fit the installed torch.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{title} needs {error.name or name}, which is not installed; run pip install "
            f"'pml-extensions[{extra}]', or choose a trunk that needs no library (conv4, "
            "conv4_pool, bn_inception)."
        ) from None
    except (ImportError, RuntimeError, AttributeError, OSError) as error:
        # torchvision raises these if it was built for another torch.
        raise UsageError(
            f"{title} needs {name}, which is installed but cannot be imported with torch "
            f"{torch.__version__} ({one_line(error, 120)}); install the {name} made for this torch."
        ) from error
