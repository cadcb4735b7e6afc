"""``reality-check embed``: embed images or tensors with a frozen trunk, once, into a folder."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from reality_check.cli.parsing import Commands, add_command, add_overrides, positive
from reality_check.utils.errors import UsageError, at_home
from reality_check.utils.exit_status import DONE

if TYPE_CHECKING:
    from reality_check.config.model import Model
    from reality_check.launch.embedding import Embedding

_DETAILS = """\
Embeds every sample of DATA once and writes a folder of .npy files: features,
labels, names and origin. Comparing losses on them takes minutes:
`dataset: FOLDER` with `model: identity` and `protocol: features`. After an
interruption, the same command resumes.

Without --weights, trunks of torchvision, timm and hf get their published weights;
all others get random ones or those that their own code loads.

examples:
  reality-check embed ./birds --trunk timm:vit_small_patch14_dinov2 --out birds_features
  reality-check embed cub200 dataset.path=/my/CUB_200_2011 --trunk resnet50 --out cub_features
  reality-check embed omniglot --trunk my_models.MyTrunk --weights mine.pth --out features

exit status: 0 written or already there, 2 an input cannot be used
"""
#: Side of the crops if neither the user nor the weights give one.
_DEFAULT_CROP = 224


def add_parser(commands: Commands) -> None:
    title = "embed images or tensors with a frozen trunk, into a folder of features"
    command = add_command(commands, "embed", run, title, _DETAILS)
    command.add_argument(
        "data",
        metavar="DATA",
        help="a folder with one sub-folder of images per class or a .zip of it, a .csv list, a "
        "file of tensors, the YAML of a data set, or a name from `reality-check show datasets`",
    )
    add_overrides(
        command,
        "overrides: dataset.KEY=VALUE or model.KEY=VALUE, e.g. model.arguments.img_size=224",
    )
    command.add_argument(
        "--trunk",
        required=True,
        metavar="NAME",
        help="timm:NAME, hf:NAME, torchvision:NAME, or the import path of a torch.nn.Module",
    )
    command.add_argument("--out", required=True, metavar="FOLDER", help="the folder to write")
    command.add_argument(
        "--weights",
        metavar="WEIGHTS",
        help="published, none, a tag, or the path of a file or folder",
    )
    command.add_argument(
        "--pooling",
        default="average",
        choices=("average", "max", "average_plus_max", "gem", "flatten"),
        help="for trunks that return maps (default: average)",
    )
    command.add_argument(
        "--crop-size",
        type=positive,
        metavar="PIXELS",
        help="side of the centre crop (default: the trunk's img_size or image_size; that with "
        "which published weights were evaluated; 224 for other weights; or the images' size)",
    )
    command.add_argument(
        "--resize", type=positive, metavar="PIXELS", help="short side before the crop"
    )
    _add_computation(command)


def _add_computation(command: argparse.ArgumentParser) -> None:
    """Add the options on how the outputs are computed and written."""
    command.add_argument(
        "--batch-size", type=positive, default=64, metavar="N", help="samples (default: 64)"
    )
    command.add_argument(
        "--device", default="auto", help="auto, cpu, mps, cuda or cuda:N (default: auto)"
    )
    command.add_argument(
        "--autocast",
        default="none",
        choices=("none", "bf16", "fp16"),
        help="precision of the forward pass (default: none, i.e. float32)",
    )
    command.add_argument(
        "--dtype",
        choices=("float16", "float32"),
        help="data type in the file (default: float32; with --until, float16)",
    )
    command.add_argument(
        "--until",
        metavar="MODULE",
        help="write the outputs of this module of the trunk, such as blocks.9 or layer3, so that "
        "`model: {trunk: {from: FOLDER}}` trains what follows",
    )


def run(options: argparse.Namespace) -> int:
    from dataclasses import replace

    from reality_check.config.datasets import NamedDataset
    from reality_check.config.messages import validate
    from reality_check.config.overrides import parse_override, set_value
    from reality_check.data import ImageSet, load_dataset
    from reality_check.data.source_images import dataset_json
    from reality_check.launch.embedding import embed_to_folder
    from reality_check.utils.processes import keep_freed_memory

    plain = {"dataset": _expand_dataset(options.data), "model": {}}
    for text in options.overrides:
        keys, value = parse_override(text)
        if keys[0] not in plain or len(keys) < 2:
            raise UsageError(
                f"{text!r} changes neither the data set nor the model; write dataset.KEY=VALUE or "
                "model.KEY=VALUE."
            )
        set_value(plain, keys, value)
    out = at_home(options.out)
    embedding = _embedding(options, plain["model"])
    config = validate(NamedDataset, {"dataset": plain["dataset"]}, "embed").dataset
    data = replace(load_dataset(config), name=config.name)
    if isinstance(data, ImageSet) and embedding.crop_size is None:
        embedding = replace(embedding, crop_size=_crop_size(embedding.model, data))
    keep_freed_memory(all_of_it=True)
    shape = embed_to_folder(data, embedding, out, print, dataset_json(config))
    print(f"{out}: {' x '.join(f'{n:,}' for n in shape)} {embedding.dtype}")
    model, protocol = "identity", "features"
    if embedding.until is not None:
        model, protocol = f"{{trunk: {{from: {out}}}}}", "finetune_from_file"
    print(f"Next: dataset: {out} with model: {model} and protocol: {protocol} in a YAML")
    return DONE


def _expand_dataset(data: str) -> dict[str, Any]:
    """Return the settings of a data set; a plain folder of images gets a ``size``.

    The default of such a folder is too small for the usual crops.
    """
    from reality_check.config.named import dataset_of_path, expand

    dataset: dict[str, Any] = expand(data, "dataset", "datasets", None)
    is_folder = dataset["reader"] == "image_folder" and dataset == dataset_of_path(data)
    return dataset | ({"size": 256} if is_folder else {})


def _embedding(options: argparse.Namespace, changes: dict[str, Any]) -> Embedding:
    """Return the settings of the embedding; ``changes`` are keys of the model from overrides."""
    from reality_check.config.messages import validate
    from reality_check.config.model import Model
    from reality_check.launch.embedding import Embedding
    from reality_check.training.prepared_experiment import pick_device

    weights = options.weights or ("none" if _is_own(options.trunk) else "imagenet")
    settings = {"trunk": options.trunk, "weights": weights, "pooling": options.pooling}
    model = validate(Model, {"name": "trunk", **settings, **changes}, "embed")
    return Embedding(
        model=model,
        crop_size=options.crop_size,
        resize=options.resize,
        batch_size=options.batch_size,
        device=pick_device(options.device),
        autocast=options.autocast,
        dtype=options.dtype or ("float32" if options.until is None else "float16"),
        until=options.until,
    )


def _crop_size(model: Model, data: Any) -> int | None:
    """Return the side of the crops; ``None`` if the images are not to be cropped."""
    from reality_check.models.trunk_building import published_crop_size

    if _is_own(model.trunk):
        # Square images of one size need no crop; there is no shape if they have several.
        shape = data.image_shape
        return None if shape is not None and shape[0] == shape[1] else _DEFAULT_CROP
    given = model.arguments.get("img_size", model.arguments.get("image_size"))
    return given if isinstance(given, int) else published_crop_size(model) or _DEFAULT_CROP


def _is_own(trunk: str) -> bool:
    """Return whether a trunk is this package's or the user's, not a library's."""
    from reality_check.models.own_trunks import OwnTrunk
    from reality_check.models.trunk_names import find_source

    return isinstance(find_source(trunk), OwnTrunk)
