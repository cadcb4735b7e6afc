"""The keys of a model's YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    ValidationError,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from reality_check.config.types import (
    TABLE_NEUTRAL,
    Arguments,
    Name,
    PositiveInt,
    Searchable,
)
from reality_check.config.values import (
    Choices,
    Range,
    Searched,
    Strict,
    ends_of,
    fill_in,
    find_searched,
    is_number,
)
from reality_check.utils.paths import expand_path
from reality_check.utils.text import nearest

#: The names of :data:`pml_extensions.modules.HEAD_PRESETS`, written out because its import takes
#: seconds.
HEADS = (
    "sgsl_official",
    "sgsl_paper",
    "normalized_softmax",
    "heated_up_softmax",
    "heated_up_softmax_bn",
    "heated_up_softmax_bn_official",
    "grad_ml",
    "warped_softmax",
    "warped_softmax_sop",
    "proxy_nca_plus_plus",
    "hist",
)
#: Heads that end in a BatchNorm neck.
_WITH_NECK = ("sgsl_official", "sgsl_paper")
#: Prefixes of the names of searched values: of a model, and of its embedder.
MODEL_PREFIX = "model"
EMBEDDER = f"{MODEL_PREFIX}.embedder"
#: The layers that compute queries and values, by their names in timm and transformers.
ATTENTION = r"(.*\.)?(W?qkv|kv|[qv](_proj|_lin)?|(query|value)(_proj)?)"
#: The keys that a head replaces.
_PARTS = ("pooling", "normalization", "embedder")


class _Part(Strict):
    """A part of a model, of which each searched value is checked at its ends."""

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        for key, field in type(self).model_fields.items():
            value = getattr(self, key)
            if isinstance(value, Range) and isinstance(field.default, int) and not value.integer:
                raise ValueError(f"{key} takes whole numbers; write int: true in its range")
            for end in ends_of(value) if isinstance(value, Range | Choices) else ():
                try:
                    type(self).model_validate({key: end})
                except ValidationError as error:
                    reason = error.errors()[0]["msg"]
                    raise ValueError(f"{key} cannot be {end}: {reason}") from None
        return self


class Embedder(_Part):
    """The module that turns features into embeddings: one linear layer or a perceptron.

    A perceptron, of several ``layers``, is a :class:`pml_extensions.modules.MLPEmbedder`.
    """

    layers: Searchable[PositiveInt] = 1
    """Number of linear layers: 1, or more for a perceptron. May be searched, like the next three
    keys."""
    hidden_size: Searchable[PositiveInt] = 512
    """Width of all layers of the perceptron but the last."""
    hidden_normalization: Searchable[Literal["none", "batch_norm", "layer_norm"]] = "none"
    """Normalization after each of these layers: none, batch_norm or layer_norm."""
    dropout: Searchable[Annotated[float, Field(ge=0, lt=1)]] = 0.0
    """Probability of setting an input of a linear layer to 0."""
    bias: bool = True
    """Whether the layer has a bias."""
    init: Literal["default", "kaiming_fan_out", "pca"] = "default"
    """Initialisation of the last layer. default: torch's. kaiming_fan_out: standard deviation
    sqrt(2 / size), bias 0. pca: a single layer starts from the principal components of the training
    features."""
    skip_if_equal: bool = False
    """Whether to omit the layer if the features have the embedding's width."""

    @model_validator(mode="after")
    def _check_layers(self) -> Self:
        if self.layers != 1 and (self.init == "pca" or self.skip_if_equal):
            option = "init: pca" if self.init == "pca" else "skip_if_equal"
            raise ValueError(f"{option} is for a single layer; write layers: 1")
        return self

    @property
    def is_linear(self) -> bool:
        """Whether it is a single linear layer without dropout."""
        return self.layers == 1 and self.dropout == 0


class Adapter(_Part):
    """A low-rank adapter of the trunk, whose own weights are frozen: LoRA (Hu et al. 2022).

    Each key but ``targets`` may be searched.
    """

    rank: Searchable[PositiveInt] = 8
    """Rank of the two matrices that are added to each adapted layer."""
    alpha: Searchable[PositiveFloat] = 16.0
    """What they add is multiplied by alpha / rank."""
    dropout: Searchable[Annotated[float, Field(ge=0, lt=1)]] = 0.0
    """Probability of setting an input of the adapter to 0."""
    targets: list[str] = Field(default_factory=lambda: [ATTENTION])
    """Regular expressions for the full names of the adapted layers; by default those that compute
    queries and values of attention."""


class Stored(Strict):
    """Where samples come from that are outputs of the trunk's module ``frozen``."""

    images: tuple[PositiveInt, PositiveInt, PositiveInt]
    """Height, width and channels of the images that entered the trunk."""
    state: str
    """SHA-256 of the trunk's weights."""


def _in_words(value: Any) -> str:
    """Return a value, or the values among which it is searched, in words."""
    if isinstance(value, Range):
        return f"{value.low:g} to {value.high:g}"
    return " or ".join(map(str, value.choices)) if isinstance(value, Choices) else str(value)


class Input(Strict):
    """Preprocessing of the trunk's input; null is that with which its weights were trained."""

    mean: tuple[float, ...] | None = None
    """Subtracted from the pixels: a number, or one for each of 3 channels."""
    std: tuple[float, ...] | None = None
    """Divides the difference: a number, or one for each of 3 channels."""
    scale: float | None = None
    """Value of a white pixel before mean and std: 1 or 255."""
    bgr: bool | None = None
    """Whether the trunk takes the channels in the order blue, green, red."""

    @field_validator("mean", "std", mode="before")
    @classmethod
    def _per_channel(cls, value: Any) -> Any:
        values = value if isinstance(value, list | tuple) else [value]
        if value is not None and (len(values) not in (1, 3) or not all(map(is_number, values))):
            raise ValueError(f"write a number, or one for each of 3 channels; got {value!r}")
        return None if value is None else values


class Model(Strict):
    """Trunk, head and embedder. The width of the embedding is the protocol's."""

    name: Annotated[Name, TABLE_NEUTRAL]
    """Name of the network in reports."""
    trunk: str = "conv4"
    """conv4, a name of torchvision, timm or transformers (hf:NAME), or an import path:
    docs/trunks.md."""
    arguments: Arguments = Field(default_factory=dict)
    """Keyword arguments of the trunk, which may be searched."""
    weights: str = "none"
    """none, published (or imagenet), a tag of torchvision or timm, or a path: docs/trunks.md."""
    frozen: Searchable[str | None] = None
    """The module, such as blocks.9 or layer3, up to which the trunk is not trained; choices are
    searched."""
    adapter: Adapter | None = None
    """A low-rank adapter, which is trained instead of the trunk's weights."""
    stored: Stored | None = None
    """Written for {from: FOLDER}: the samples are outputs of the module `frozen`."""
    last_stride: Literal[1, 2] = 2
    """Stride of the trunk's last stage; 1 makes its feature maps twice as large."""
    remove_last_bn_relu: Literal["no", "paper", "official"] = "no"
    """Whether and how to remove the trunk's last BatchNorm and ReLU: no, paper or official."""
    head: str | None = None
    """Name of a paper's head, which replaces pooling, normalization and embedder; these are null
    then."""
    bn_relu_modules: NonNegativeInt = 0
    """Pairs of BatchNorm and ReLU before the neck of SGSL's heads."""
    pooling: Literal["average", "max", "average_plus_max", "gem", "flatten"] | None = None
    """How feature maps become vectors."""
    normalization: Literal["none", "layer_norm", "batch_norm"] | None = None
    """What follows the pooling."""
    embedder: Embedder | None = None
    """The last linear layer."""
    neck: Literal["none", "batch_norm", "heated_up_softmax"] = "none"
    """A BatchNorm without scale and shift behind the embedder: batch_norm with torch's eps and
    momentum, or heated_up_softmax with the eps and momentum of that paper."""
    preprocessing: Input = Field(default_factory=Input)
    """Preprocessing that differs from that with which the weights were trained."""

    @model_validator(mode="before")
    @classmethod
    def _read_stored(cls, values: Any) -> Any:
        """Replace {from: FOLDER} by the trunk whose outputs the folder of ``embed`` holds."""
        trunk = values.get("trunk") if isinstance(values, Mapping) else None
        if not isinstance(trunk, Mapping):
            return values
        if [*trunk] != ["from"]:
            raise ValueError(f"trunk: write a name, or {{from: FOLDER}}; got {dict(trunk)}")
        try:
            recipe = json.loads(str(np.load(expand_path(trunk["from"]) / "made_of.npy")))
            return {**values, **recipe["model"]}
        except (OSError, ValueError, KeyError):
            raise ValueError(
                f"trunk: {trunk['from']} is no folder that reality-check embed --until has written"
            ) from None

    @field_validator("weights", mode="before")
    @classmethod
    def _null_weights(cls, value: Any) -> Any:
        return "none" if value is None else value

    @field_validator("remove_last_bn_relu", mode="before")
    @classmethod
    def _boolean_as_text(cls, value: Any) -> Any:
        if isinstance(value, bool):  # YAML 1.1 reads no as false
            return "paper" if value else "no"
        return value

    @field_validator("head")
    @classmethod
    def _check_head(cls, value: str | None) -> str | None:
        if value is not None and value not in HEADS:
            raise ValueError(
                f"there is no head named {value!r}.{nearest(value, HEADS)} Write one of "
                f"{', '.join(HEADS)}; or pooling, normalization and embedder"
            )
        return value

    @model_validator(mode="after")
    def _check_frozen(self) -> Self:
        if isinstance(self.frozen, Range):
            raise ValueError(
                "frozen takes the name of a module, or {choices: [blocks.8, blocks.9]}"
            )
        if self.stored is not None and not isinstance(self.frozen, str):
            raise ValueError(
                "samples that are outputs of a module fix frozen, which is that module; remove it"
            )
        return self

    @model_validator(mode="after")
    def _resolve_head(self) -> Self:
        """Fill in the parts of a model without a head, or refuse parts beside a head."""
        if self.bn_relu_modules and self.head not in _WITH_NECK:
            raise ValueError(
                "bn_relu_modules go before the BatchNorm neck of a head; write head: "
                f"{' or '.join(_WITH_NECK)}, or remove bn_relu_modules"
            )
        if self.head is None:
            self.pooling = self.pooling or "average"
            self.normalization = self.normalization or "none"
            self.embedder = self.embedder or Embedder()
            return self
        for key in _PARTS:
            if getattr(self, key) is not None:
                raise ValueError(f"head {self.head} has its own {key}; remove one of the two")
        if self.neck != "none":
            raise ValueError(f"head {self.head} ends as its paper has it; remove neck or head")
        return self

    def describe_head(self) -> str:
        """Describe the head in a phrase, for reports."""
        if self.head is not None:
            return f"head {self.head}"
        neck = "" if self.neck == "none" else f", neck {self.neck}"
        options = self.embedder or Embedder()
        mlp = "" if options.is_linear else f", {_in_words(options.layers)} linear layers"
        if self.trunk == "identity":
            return f"normalisation {self.normalization}{neck}{mlp}"
        return f"pooling {self.pooling}, normalisation {self.normalization}{neck}{mlp}"

    def _searchable(self) -> dict[str, Any]:
        """Return the keys that may be searched, with those below them."""
        parts = {"embedder": self.embedder, "adapter": self.adapter}
        plain = {key: dict(part) for key, part in parts.items() if part is not None}
        return {"arguments": self.arguments, "frozen": self.frozen, **plain}

    def searched(self) -> dict[str, Searched]:
        """Return the searched values by their names in a trial's parameters."""
        return dict(find_searched(self._searchable(), MODEL_PREFIX))

    def filled(self, params: Mapping[str, Any]) -> Model:
        """Return this model with the sampled values of a trial.

        Args:
            params: values by the names of :meth:`searched`. Missing ones get the default of an
                embedder, or the middle of their range.
        """
        searched = self.searched()
        if not searched:
            return self
        defaults = {f"{EMBEDDER}.{key}": value for key, value in Embedder()}
        middles = {name: value.middle() for name, value in searched.items()}
        filled = fill_in(self._searchable(), MODEL_PREFIX, {**middles, **defaults, **params})
        return Model.model_validate({**self.plain(), **filled})

    def changed(self, changes: Mapping[str, Any]) -> Model:
        """Return this model with some keys replaced, each as a whole.

        A ``head`` replaces ``pooling``, ``normalization``, ``embedder`` and ``neck``, and any of
        those replaces a head.

        Raises:
            ValueError: a value is not allowed (pydantic's ``ValidationError``).
        """
        plain = self.plain()
        if changes.get("head") is not None:
            plain |= dict.fromkeys(_PARTS) | {"neck": "none"}  # the parts are null
        elif any(changes.get(key) is not None for key in (*_PARTS, "neck")):
            plain |= {"head": None, "bn_relu_modules": 0}
        return Model.model_validate({**plain, **changes})
