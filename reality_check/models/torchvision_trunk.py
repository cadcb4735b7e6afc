"""torchvision's classification networks, cut before their pooling."""

from __future__ import annotations

import sys
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reality_check.config.classes import build
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.models.published_weights import (
    IMAGENET,
    PUBLISHED,
    PublishedWeights,
    import_library,
    refuse_arguments,
)
from reality_check.models.stem import sum_input_channels
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

#: Names of layers after the last feature maps, and of auxiliary classifiers.
_AFTER_MAPS = ("avgpool", "fc", "classifier", "head", "heads")
_AUXILIARY = ("aux1", "aux2", "AuxLogits")
#: Networks that rescale ImageNet's preprocessing to -1..1 in their forward, which is not kept.
_MINUS_ONE_TO_ONE = ("googlenet", "inception_v3")
#: Arguments that are set here, not by the user.
_SET_HERE = ("weights", "progress", "num_classes")


class TorchvisionTrunk:
    """A classification network of torchvision without its pooling and classifier."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = f"trunk torchvision:{name}"
        self._shifted = name in _MINUS_ONE_TO_ONE  # trained with values of -1..1
        self._models = import_library("torchvision", self.title).models
        known = torchvision_names(self._models)
        if name not in known:
            raise UsageError(
                f"torchvision has no classification network named {name!r}.{nearest(name, known)}"
            )

    @property
    def file_preprocessing(self) -> Preprocessing:
        return Preprocessing((0.5,) * 3, (0.5,) * 3) if self._shifted else IMAGENET

    def build(self, arguments: Mapping[str, Any], image_shape: tuple[int, int, int]) -> nn.Module:
        trunk = cut(self._network(arguments, None))
        if image_shape[2] == 1:
            sum_input_channels(trunk)
        return trunk

    def published(self, weights: str, arguments: Mapping[str, Any]) -> PublishedWeights:
        entry = self._entry(weights)
        transforms = entry.transforms()
        preprocessing = Preprocessing(tuple(transforms.mean), tuple(transforms.std))
        return PublishedWeights(
            # The file's name contains its hash, so torchvision's version is not needed.
            identity=f"torchvision {entry.name} {Path(entry.url).name}",
            preprocessing=self.file_preprocessing if self._shifted else preprocessing,
            url=entry.url,
            folder=str(Path(torch.hub.get_dir()) / "checkpoints"),
            load=lambda: cut(self._network(arguments, entry)).state_dict(),
            crop_size=int(transforms.crop_size[0]),
        )

    def _entry(self, weights: str) -> Any:
        """Return torchvision's enumeration member for the weights named ``weights``."""
        entries = {entry.name: entry for entry in self._models.get_model_weights(self.name)}
        # The literature uses the first weights; the weights of newer recipes are named V2.
        name = "IMAGENET1K_V1" if weights in PUBLISHED else weights
        if name not in entries:
            raise UsageError(
                f"{self.title} has no weights {weights!r}; write weights: none, "
                f"{', '.join(entries)} or the path of a file.{nearest(weights, entries)}"
            )
        return entries[name]

    def _network(self, arguments: Mapping[str, Any], weights: Any) -> nn.Module:
        """Create the network with ``weights`` of torchvision, or with random ones if None."""
        refuse_arguments(self.title, arguments, _SET_HERE)
        builder = self._models.get_model_builder(self.name)

        def make(**options: Any) -> nn.Module:
            return builder(weights=weights, progress=sys.stderr.isatty(), **options)

        with warnings.catch_warnings():
            # GoogLeNet and Inception warn that their initialisation will change.
            warnings.simplefilter("ignore", FutureWarning)
            if weights is not None:
                return make(**arguments)  # load_published explains errors of downloads
            return build(make, arguments, self.title, extra={})


def torchvision_names(models: Any) -> list[str]:
    """Return the names of the classification networks of ``torchvision.models``."""
    return list(models.list_models(module=models))


def cut(network: nn.Module) -> nn.Module:
    """Return the layers of a torchvision network up to its last feature maps.

    A vision transformer keeps its class token and returns vectors.
    """
    if hasattr(network, "heads"):
        network.heads = nn.Identity()
        return network
    kept: OrderedDict[str, nn.Module] = OrderedDict()
    for name, child in network.named_children():
        if name in _AFTER_MAPS:
            break
        if name not in _AUXILIARY:  # a ModuleList cannot be called
            kept[name] = nn.Sequential(*child) if isinstance(child, nn.ModuleList) else child
    if type(network).__name__ == "DenseNet":
        kept["relu"] = nn.ReLU(inplace=True)  # DenseNet's forward calls it as a function
    return nn.Sequential(kept)
