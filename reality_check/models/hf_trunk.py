"""Models of transformers, from a local folder or from what ``hf download`` has fetched."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reality_check.config.classes import one_line
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.data.tensors import InputShape, example_input
from reality_check.models.partly_frozen import influences
from reality_check.models.published_weights import (
    FROM_SCRATCH,
    PUBLISHED,
    PublishedWeights,
    import_library,
)
from reality_check.models.weight_files import file_hash, read_json
from reality_check.utils.errors import UsageError, users_code
from reality_check.utils.paths import expand_path

#: The files that say how the weights are used; those that exist are part of the fingerprint.
_SETTINGS = (
    "config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "1_Pooling/config.json",
)
#: The poolings of sentence-transformers, as it writes them now and as it did before version 6.
_POOLINGS = {
    "mean": "mean",
    "pooling_mode_mean_tokens": "mean",
    "cls": "class",
    "pooling_mode_cls_token": "class",
    "lasttoken": "last",
    "pooling_mode_lasttoken": "last",
}
#: Keys of a configuration by which transformers would fetch code or weights.
_IGNORED = ("attn_implementation", "_attn_implementation", "use_pretrained_backbone")


class HfModel(nn.Module):
    """A model of transformers whose tokens become one vector; the maps of others stay maps.

    Attributes:
        pooling: ``maps``, ``model``, ``class``, ``mean`` or ``last``.

    Shape: (B, C, H, W) or token ids (B, L) -> (B, F), or (B, F, h, w) for ``maps``.
    """

    def __init__(self, model: Any, config: Any) -> None:
        super().__init__()
        self.model = model
        self.pooling = ""
        padding = getattr(config, "pad_token_id", None)
        self.padding = -1 if padding is None else int(padding)
        # SigLIP was trained without a mask, and its tokenizer returns none.
        self._masked = not config.model_type.startswith("siglip")
        self._patch = getattr(config, "patch_size", 1)
        resizes = "interpolate_pos_encoding" in inspect.signature(model.forward).parameters
        self._options = {"interpolate_pos_encoding": True} if resizes else {}

    def forward(self, samples: Tensor) -> Tensor:
        return self.outputs(samples)[self.pooling]

    def outputs(self, samples: Tensor) -> dict[str, Tensor]:
        """Return the output by each pooling that the model has."""
        if samples.is_floating_point():
            output = self.model(pixel_values=samples, **self._options)
        else:
            counts = samples.ne(self.padding).long()
            options = {"attention_mask": counts} if self._masked else {}
            output = self.model(input_ids=samples.long(), **options)
        tokens, pooled = output.last_hidden_state, getattr(output, "pooler_output", None)
        found = {} if pooled is None else {"model": pooled.flatten(1)}
        if tokens.ndim == 4:
            return {"maps": tokens, **found}
        first = 1
        if samples.is_floating_point():
            height, width = (side // self._patch for side in samples.shape[2:])
            first = max(tokens.shape[1] - height * width, 0)  # of the class token and registers
            found["mean"] = tokens[:, first:].mean(dim=1)
        else:
            total = (tokens * counts[..., None]).sum(dim=1)
            found["mean"] = total / counts.sum(dim=1, keepdim=True).clamp(min=1)
            last = (counts * torch.arange(counts.shape[1], device=counts.device)).argmax(dim=1)
            found["last"] = tokens[torch.arange(len(tokens), device=last.device), last]
        if first:
            found["class"] = tokens[:, 0]
        return found


class HfTrunk:
    """A model by the name of its repository, or by a folder that ``save_pretrained`` wrote."""

    file_preprocessing = FROM_SCRATCH  # never used: the weights are a folder, which says it

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = f"trunk hf:{name}"
        self._library = import_library("transformers", self.title, "transformers")
        self._library.logging.set_verbosity_error()  # it lists weights that are not needed
        self._library.logging.disable_progress_bar()
        self._folder = self._find_folder()
        self._plain = self._read("config.json")
        if "auto_map" in self._plain:
            raise UsageError(
                f"{self.title} needs code of its repository (auto_map in config.json), which is "
                "never run; write the import path of a trunk of your own that runs it."
            )
        kind = self._plain.get("model_type")
        if kind not in self._library.CONFIG_MAPPING:
            raise UsageError(
                f"{self.title}: {self._folder} has no config.json with a model_type that "
                f"transformers {self._library.__version__} knows (it is {kind!r}); write a folder "
                "that save_pretrained or `hf download` wrote, or timm:NAME for a model of timm."
            )

    def build(
        self, arguments: Mapping[str, Any], shape: InputShape, weights: str = "none"
    ) -> nn.Module:
        """Build the trunk with these weights, which transformers loads while it builds."""
        example = example_input(shape)
        config, missing = self._configure(arguments), set()
        if weights == "none":
            whole = self._library.AutoModel.from_config(config)
        else:
            self._weight_files(weights)
            failed = f"{self.title}: the weights in {self._folder} do not fit its config.json"
            with users_code(failed):
                whole, found = self._library.AutoModel.from_pretrained(
                    self._folder,
                    config=config,
                    local_files_only=True,
                    use_safetensors=True,
                    output_loading_info=True,
                )
            missing = found["missing_keys"]
        # Of a model of images and texts, one part is used.
        part = "vision" if example.is_floating_point() else "text"
        model = getattr(whole, f"{part}_model", whole)
        network = HfModel(model.float(), getattr(config, f"{part}_config", config)).eval()
        order = ["maps", "model", "class", "mean"]
        if part == "text":
            example += network.padding <= 0  # so that it is not padding
            if model is whole:
                order = ["mean"]  # as sentence-transformers does
        if "pooling" in arguments:
            order = [arguments["pooling"]]
        elif part == "text" and (recorded := self._read("1_Pooling/config.json")):
            order = [self._recorded_pooling(recorded)]
        missing = {f"model.{key.removeprefix(f'{part}_model.')}" for key in missing}
        with torch.enable_grad():
            self._settle(network, order, example, missing)
        return network.train()

    def published(self, weights: str, arguments: Mapping[str, Any]) -> PublishedWeights:
        given = self._read("preprocessor_config.json")
        given = given or self._read("processor_config.json").get("image_processor", {})
        if "image_mean" not in given or not given.get("do_normalize", True):
            raise UsageError(
                f"{self.title}: {self._folder} has no preprocessor_config.json with image_mean and "
                "image_std, as models of texts have none; write a model of images, or put that "
                "file there."
            )
        scale = 255 * given.get("rescale_factor", 1 / 255)
        side = given.get("crop_size") or given.get("size")
        return PublishedWeights(
            self.name,
            Preprocessing(tuple(given["image_mean"]), tuple(given["image_std"]), scale),
            load=dict,  # build has loaded them
            # Either a number, or both sides, or the shortest.
            crop_size=next(iter(side.values())) if isinstance(side, Mapping) else side,
        )

    def fingerprint(self, weights: str) -> str:
        """Return a hash of all files that the network is made from."""
        files = [*(self._folder / name for name in _SETTINGS), *self._weight_files(weights)]
        hashes = " ".join(file_hash(file) for file in files if file.is_file())
        return f"sha256:{hashlib.sha256(hashes.encode()).hexdigest()}"

    def check_token_ids(self, arguments: Mapping[str, Any], ids: np.ndarray) -> None:
        """Refuse token ids that are negative, or beyond the vocabulary of a network for texts."""
        config = self._configure(arguments)
        size = getattr(getattr(config, "text_config", config), "vocab_size", math.inf)
        if ids.dtype.kind != "f" and not 0 <= ids.min() <= ids.max() < size:
            raise UsageError(
                f"{self.title} knows the token ids 0 to {size - 1}, but those of the samples are "
                f"{ids.min()} to {ids.max()}; make them with the tokenizer of that model."
            )

    def _find_folder(self) -> Path:
        folder = expand_path(self.name)
        if folder.is_dir():
            return folder
        from huggingface_hub import snapshot_download

        with contextlib.suppress(OSError, ValueError):
            return Path(snapshot_download(self.name, local_files_only=True))
        raise UsageError(
            f"{self.title}: there is no folder {self.name}, and no model of that name was "
            f"downloaded, which is never done silently; run `hf download {self.name}` once, or "
            "write weights: DIR with the folder of its config.json and model.safetensors."
        )

    def _read(self, name: str) -> dict[str, Any]:
        """Return a JSON file of the folder; {} if there is none."""
        plain = read_json(self._folder / name)
        return {key: value for key, value in plain.items() if key not in _IGNORED}

    def _recorded_pooling(self, recorded: Mapping[str, Any]) -> str:
        """Return the pooling that sentence-transformers has written beside the model."""
        switched_on = [k for k, on in recorded.items() if on is True and "pooling_mode_" in k]
        given = recorded.get("pooling_mode", switched_on)
        modes = [given] if isinstance(given, str) else given
        if len(modes) != 1 or modes[0] not in _POOLINGS:
            raise UsageError(
                f"{self.title}: 1_Pooling/config.json in {self._folder} pools by "
                f"{' and '.join(modes) or 'nothing'}, which is not built in; write pooling: mean, "
                "class or last in its arguments."
            )
        return _POOLINGS[modes[0]]

    def _weight_files(self, weights: str) -> list[Path]:
        files = sorted(self._folder.glob("*.safetensors"))
        if weights not in PUBLISHED:
            raise UsageError(
                f"{self.title} has no weights {weights!r}; write weights: none, published, or the "
                "path of a folder such as ./my_model."
            )
        if not files:
            raise UsageError(
                f"{self.title}: {self._folder} has no model.safetensors, and other weights, such "
                "as a .bin that could run code, are not read; complete it with `hf download NAME`, "
                "or write weights: DIR with a folder that save_pretrained wrote."
            )
        return files

    def _configure(self, arguments: Mapping[str, Any]) -> Any:
        """Return the configuration with the changes among the arguments."""
        kind = self._library.CONFIG_MAPPING[self._plain["model_type"]]
        with users_code(f"{self.title} could not be built with {arguments}"):
            config, rest = kind.from_dict(self._plain, return_unused_kwargs=True, **arguments)
        if unknown := rest.keys() - {"pooling"}:
            raise UsageError(
                f"{self.title} has no argument {min(unknown)!r}; its arguments are pooling, and "
                f"the keys of {self._folder / 'config.json'}."
            )
        return config

    def _settle(
        self, network: HfModel, order: list[str], example: Tensor, missing: set[str]
    ) -> None:
        """Choose the first pooling that has its weights, and freeze those without a gradient."""
        try:
            outputs = network.outputs(example)
        except Exception as error:
            raise UsageError(
                f"{self.title} is a {type(network.model).__name__}, which does not take samples of "
                f"{' x '.join(map(str, example.shape[1:]))} ({one_line(error, 160)}); compare them "
                f"with max_position_embeddings or image_size in {self._folder / 'config.json'}."
            ) from error
        again = network.outputs(example)
        if not all(
            torch.allclose(output, again[key], 1e-3, 1e-4, equal_nan=True)
            for key, output in outputs.items()
        ):
            raise UsageError(
                f"{self.title} is a {type(network.model).__name__}, which returns something else "
                "each time; if it masks patches, write arguments: {mask_ratio: 0.0}."
            )
        problem = f"has no pooling {order[0]!r}"
        named = {name: p for name, p in network.named_parameters() if p.requires_grad}
        for network.pooling in filter(outputs.__contains__, order):
            counts = influences(outputs[network.pooling], [*named.values()])
            used = set(itertools.compress(named, counts))
            if not used & missing:
                for name, parameter in named.items():
                    parameter.requires_grad_(name in used)
                return
            problem = f"lacks the weights of {min(used & missing)} in {self._folder}"
        raise UsageError(
            f"{self.title} {problem}; write pooling: {' or '.join(outputs)} in its arguments."
        )
