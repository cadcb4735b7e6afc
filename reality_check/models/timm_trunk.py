"""timm's networks without classifier; they return feature maps or, if they have none, vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reality_check.config.classes import build, one_line
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.models.published_weights import (
    PUBLISHED,
    PublishedWeights,
    import_library,
    refuse_arguments,
)
from reality_check.models.weight_files import read_json
from reality_check.utils.errors import UsageError, users_code
from reality_check.utils.text import nearest

#: Arguments that are set here, not by the user.
_SET_HERE = ("model_name", "pretrained", "num_classes", "global_pool", "in_chans")


class TimmTrunk:
    """A network of timm, whose name may have a tag: ``resnet50`` or ``resnet50.a1_in1k``."""

    def __init__(self, name: str) -> None:
        self.name, _, self.tag = name.partition(".")
        self.title = f"trunk timm:{name}"
        self._timm = import_library("timm", self.title)
        if not self._timm.is_model(self.name):
            raise UsageError(
                f"timm has no network named {self.name!r}."
                f"{nearest(self.name, self._timm.list_models())}"
            )
        if self.tag:
            self._check_tag(self.tag)

    @property
    def file_preprocessing(self) -> Preprocessing:
        return self._preprocessing(self.tag)

    def build(self, arguments: Mapping[str, Any], image_shape: tuple[int, int, int]) -> nn.Module:
        refuse_arguments(self.title, arguments, _SET_HERE)
        return self._create(arguments, image_shape, None)

    def published(self, weights: str, arguments: Mapping[str, Any]) -> PublishedWeights:
        tag = self.tag if weights in PUBLISHED else weights
        if self.tag not in ("", tag):
            raise UsageError(
                f"{self.title} names the weights {self.tag!r}, but weights is {tag!r}; write "
                "weights: published for those of the name."
            )
        if tag:
            self._check_tag(tag)
        config = self._timm.get_pretrained_cfg(self._full_name(tag))
        if config is None or not config.has_weights:
            raise UsageError(f"{self.title} has no published weights; write weights: none.")
        page = f"https://huggingface.co/{config.hf_hub_id}/resolve/main"
        return PublishedWeights(
            identity=f"timm {self._timm.__version__} {self.name}.{config.tag}",
            preprocessing=self._preprocessing(tag),
            url=f"{page}/model.safetensors" if config.hf_hub_id else config.url or None,
            load=lambda: self._load(tag, arguments),
            crop_size=int(config.input_size[1]),
        )

    def read_folder(self, file: Path, arguments: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Read a file from a folder as timm does, with position embeddings of the right size.

        Raises:
            UsageError: if the folder is of another network, or lacks weights.
        """
        named = read_json(file.with_name("config.json")).get("architecture", self.name)
        if named != self.name:
            raise UsageError(f"{self.title}: {file.parent} is of {named}; write timm:{named}.")
        from safetensors import safe_open  # timm needs it

        overlay = {"file": str(file), "custom_load": False}
        with users_code(f"{self.title}: {file} cannot be read as its weights"):
            state = self._load(self.tag, {**arguments, "pretrained_cfg_overlay": overlay})
            with safe_open(str(file), framework="pt") as stored:
                given = set(stored.keys())
        # timm is silent about those that it draws at random.
        return {key: value for key, value in state.items() if key in given}

    def _load(self, tag: str, arguments: Mapping[str, Any]) -> Mapping[str, Tensor]:
        name = self._full_name(tag)
        sides = arguments.get("img_size", self._timm.get_pretrained_cfg(name).input_size[1:])
        height, width = (sides, sides) if isinstance(sides, int) else sides
        return self._create(arguments, (height, width, 3), name).state_dict()

    def _full_name(self, tag: str) -> str:
        return f"{self.name}.{tag}" if tag else self.name

    def _preprocessing(self, tag: str) -> Preprocessing:
        config = self._timm.get_pretrained_cfg(self._full_name(tag))
        return Preprocessing(tuple(config.mean), tuple(config.std))

    def _check_tag(self, tag: str) -> None:
        """Raise UsageError unless timm has weights with this tag for the network."""
        names = self._timm.list_models(f"{self.name}.*", pretrained=True)
        tags = [name.partition(".")[2] for name in names]
        if tag not in tags:
            raise UsageError(
                f"timm has no weights {tag!r} for {self.name}; write weights: none, published (its "
                f"default), {', '.join(tags)} or the path of a file.{nearest(tag, tags)}"
            )

    def _create(
        self, arguments: Mapping[str, Any], shape: tuple[int, int, int], weights: str | None
    ) -> nn.Module:
        """Create the network with the weights of a full name with a tag, or random ones if None."""
        fixed: dict[str, Any] = {"num_classes": 0, "in_chans": shape[2]}
        if _returns_maps(self.name, json.dumps(dict(arguments), sort_keys=True), shape):
            fixed["global_pool"] = ""  # no pooling

        def create(**options: Any) -> nn.Module:
            return self._timm.create_model(
                weights or self.name, pretrained=weights is not None, **fixed, **options
            )

        if weights is not None:
            return create(**arguments)  # load_published explains errors of downloads
        return build(create, arguments, self.title, extra={})


@lru_cache(maxsize=16)
@torch.no_grad()
def _returns_maps(name: str, arguments: str, shape: tuple[int, int, int]) -> bool:
    """Return whether the output before pooling is (B, C, H, W), not tokens or (B, H, W, C).

    ``arguments`` is JSON, because the arguments of a cached function must be hashable.
    """
    title = f"trunk timm:{name}"
    timm = import_library("timm", title)

    def make(**options: Any) -> nn.Module:
        return timm.create_model(name, num_classes=0, global_pool="", in_chans=shape[2], **options)

    with torch.random.fork_rng(devices=[]):
        try:
            network = build(make, json.loads(arguments), title, extra={}).eval()
        except UsageError:
            return False  # it always pools; what else is wrong shows when it is built with that
        try:
            output = network(torch.zeros(1, shape[2], *shape[:2]))
        except Exception as error:
            raise UsageError(
                f"{title} does not take images of {shape[0]}x{shape[1]} with {shape[2]} channels "
                f"({one_line(error, 160)}); a transformer takes those of another size with "
                "arguments: {img_size: SIDE}."
            ) from error
    widths = (network.num_features, getattr(network, "head_hidden_size", None))
    # Channels are last only if the last dimension, but not the second, has the network's width.
    return output.ndim == 4 and (output.shape[1] in widths or output.shape[3] not in widths)
