"""What a YAML names: experiments, and the data sets, models, protocols and methods in them.

A key such as ``dataset:`` takes a name (a file of that name in ``configs/datasets/`` of this
package, in the current folder, or beside the YAML), a path to a YAML, or a mapping; a mapping may
start from a named one with ``base: name`` and change single keys.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from reality_check.config.layers import merge
from reality_check.config.messages import validate
from reality_check.config.method import Method
from reality_check.config.model import Model
from reality_check.config.packs import packed_methods
from reality_check.config.plugins import find_plugin, plugins
from reality_check.config.protocol import Protocol
from reality_check.config.yaml_text import read_yaml
from reality_check.utils.config_files import config_files, paper_files, shipped_files
from reality_check.utils.errors import UsageError, at_home, every
from reality_check.utils.paths import find_path
from reality_check.utils.text import nearest

#: Keys of an experiment that name a file, and the folder in ``configs/`` they are looked up in.
GROUPS = {"dataset": "datasets", "model": "models", "protocol": "protocols"}
#: Suffixes of files of tensors.
TENSOR_FILES = (".npz", ".npy", ".safetensors", ".parquet")
#: From the suffix of a file that a data set may be given by to its reader.
_READERS = {**dict.fromkeys(TENSOR_FILES, "tensors"), ".csv": "csv", ".zip": "image_folder"}
#: A message lists at most this many names and says how many more there are.
_MOST_LISTED = 15


def find_experiment(path: str | Path) -> Path:
    """Return the file of an experiment, given by path or by name."""
    file = at_home(path)
    if file.is_file():
        return file.resolve()
    named = config_files("experiments")
    known = named | paper_files()
    if str(path) in known:
        return known[str(path)]
    if file.is_dir():
        raise UsageError(f"{path} is a folder; name the YAML of an experiment.")
    if file.suffix in (".yaml", ".yml"):
        siblings = sorted(str(file.with_name(path.name)) for path in file.parent.glob("*.y*ml"))
        raise UsageError(
            f"There is no file {str(path)!r}, {_existing_files(file, siblings)}."
            f"{nearest(str(file), siblings)}"
        )
    raise UsageError(
        f"There is no file {str(path)!r} and no experiment of that name; experiments that ship "
        f"with the package: {_short_list(named, 'experiments')}; those of the papers: "
        f"reality-check show papers.{nearest(str(path), known)}"
    )


def _existing_files(file: Path, siblings: list[str]) -> str:
    """Return the part of the message on a missing YAML that says which files exist."""
    if not file.parent.is_dir():
        return f"and no folder {str(file.parent)!r}"
    if not siblings:
        return f"nor another YAML in {str(file.parent.resolve())!r}; reality-check init writes one"
    return f"but {', '.join(siblings[:_MOST_LISTED])}"


def named_method(name: str) -> Method:
    """Return the method of that name that ships with the package, ignoring the user's folders."""
    return validate(Method, _read_shipped(name, "methods"), name)


def named_model(name: str) -> Model:
    """Return the model of that name that ships with the package, ignoring the user's folders."""
    return validate(Model, _read_shipped(name, "models"), name)


def named_protocol(name: str) -> Protocol:
    """Return the protocol of that name that ships with the package, ignoring the user's folders.

    Raises:
        UsageError: none of that name ships with the package.
    """
    files = shipped_files("protocols")
    if name not in files:
        raise UsageError(
            f"protocol.reference is {name!r}, but it must name a protocol that ships with the "
            "package (reality-check show protocols), against which deviations are counted; write "
            f"mlrc or appendix_d.{nearest(name, files)}"
        )
    return validate(Protocol, _read_shipped(name, "protocols"), name)


def _read_shipped(name: str, group: str) -> dict[str, Any]:
    """Return the content of a shipped YAML, merged with its bases."""
    file = shipped_files(group)[name]
    data = {"name": file.stem, **read_yaml(file)}
    base = data.pop("base", None)
    return merge(_read_shipped(base, group), data) if base else data


def expand_methods(methods: Any, beside: Path | None) -> list[Any]:
    """Return the methods of an experiment as plain mappings, each with a name.

    Raises:
        UsageError: there are none, or one has neither a loss nor a base.
    """
    if not isinstance(methods, list) or not methods:
        raise UsageError(
            "methods must be a list of names or mappings, e.g. methods: [normalized_softmax]."
        )
    # ``every`` reports the mistakes of all entries together.
    lists = every(partial(_expand_entry, entry, beside) for entry in methods)
    return list(itertools.chain.from_iterable(lists))


def _expand_entry(entry: Any, beside: Path | None) -> list[dict[str, Any]]:
    """Return the one method of an entry, or the methods of its pack."""
    if isinstance(entry, Mapping) and "from" in entry:
        return packed_methods(entry, beside)
    if isinstance(entry, Mapping) and "base" not in entry and "loss" not in entry:
        raise UsageError(
            "a method needs a loss (loss: my_losses.MyLoss), a base (base: proxy_nca) or a pack "
            f"(from: theirs.pack); got the keys {sorted(map(str, entry))}."
        )
    method = expand(entry, "method", "methods", beside)
    method.setdefault("name", str(method.get("loss", "")).rpartition(".")[2])
    return [method]


def expand(
    value: Any, key: str, group: str, beside: Path | None, trail: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """Turn a name, a path or a mapping with ``base`` into a plain mapping.

    Args:
        key: the key of the experiment that the value belongs to.
        group: the folder in ``configs/`` that its names are in.
        beside: the folder of the YAML, whose own files are found by name, too.
        trail: the files whose ``base`` led here.

    Raises:
        UsageError: there is nothing of that name, or it is its own base.
    """
    if isinstance(value, str):
        return _read_named(value, key, group, beside, trail)
    if not isinstance(value, Mapping):
        raise UsageError(f"{key} must be a name or a mapping, got {value!r}.")
    mapping = dict(value)
    base = mapping.pop("base", None)
    if base is None:
        return mapping
    if not isinstance(base, str):
        raise UsageError(f"{key}.base must be a name, got {base!r}.")
    return merge(_read_named(base, key, group, beside, trail), mapping)


def _read_named(
    name: str, key: str, group: str, beside: Path | None, trail: tuple[Path, ...]
) -> dict[str, Any]:
    """Return what a name or path stands for as a mapping, merged with its bases."""
    if key == "dataset" and _is_plugin(name, beside):
        return {"name": name, "reader": "function", "function": name}
    if key == "dataset" and name not in config_files(group, beside):
        dataset = dataset_of_path(name, beside)
        if dataset is not None:
            return dataset
    file = _find_named(name, key, group, beside, trail)
    if file in trail:
        chain = " -> ".join(path.stem for path in (*trail, file))
        raise UsageError(f"{key}: {name!r} is its own base ({chain}); remove one base.")
    data = read_yaml(file)
    data.setdefault("name", file.stem)
    return expand(data, key, group, beside, (*trail, file)) if "base" in data else data


def dataset_of_path(path: str, beside: Path | None = None) -> dict[str, str] | None:
    """Return the data set in a folder or a file; ``None`` if the path is neither.

    Args:
        beside: the folder of the YAML, to which the path may be relative, too.
    """
    file = find_path(path, beside)
    reader = _READERS.get(file.suffix.lower())
    if file.is_dir():
        # Hugging Face's save_to_disk writes dataset_*.json, and reality-check embed *.npy.
        saved = any(file.glob("dataset_*.json")) or any(file.glob("*.npy"))
        reader = "tensors" if saved else "image_folder"
    if reader is None:
        return None
    # Names consist of certain signs, and begin with a letter or digit.
    name = re.sub(r"[^A-Za-z0-9_.+-]", "_", file.resolve().stem).lstrip("_.+-")
    return {"name": name[:64] or "data", "reader": reader, "path": str(file)}


def _is_plugin(name: str, beside: Path | None) -> bool:
    """Return whether a plugin's data set has that name; the user's own files take precedence."""
    shipped = shipped_files("datasets").get(name)
    used = config_files("datasets", beside).get(name)
    if used != shipped:  # a file of the user
        return False
    owners = [("reality_check", str(shipped))] if shipped else []
    return find_plugin("dataset", name, owners) is not None


def _find_named(
    name: str, key: str, group: str, beside: Path | None, trail: tuple[Path, ...]
) -> Path:
    """Return the YAML file of a name or path."""
    if name.endswith((".yaml", ".yml")):
        # A path in a base may be relative to that base.
        file = find_path(name, *(path.parent for path in trail[-1:]), beside)
        if not file.is_file():
            raise UsageError(f"{key}: there is no file {name!r}.")
        return file.resolve()
    files = config_files(group, beside)
    if name not in files:
        known = [*files, *plugins(key)]
        others = f", no folder of that path and no file ({', '.join(_READERS)})"
        raise UsageError(
            f"{key}: there is no {key} named {name!r}{others if key == 'dataset' else ''}; known "
            f"names: {_short_list(known, group)}."
            f"{nearest(name, known)}"
        )
    if files[name] in trail:
        # The user's own file of a name may start from the one that ships with the package.
        return shipped_files(group).get(name, files[name])
    return files[name]


def _short_list(names: Iterable[str], group: str) -> str:
    """Return names for a message; of many, the first ones and the command that lists all."""
    ordered = sorted(names, key=lambda name: ("/" in name, name))  # names in sub-folders are last
    if len(ordered) <= _MOST_LISTED:
        return ", ".join(ordered) or "none"
    more = len(ordered) - _MOST_LISTED
    return f"{', '.join(ordered[:_MOST_LISTED])} and {more} more (reality-check show {group})"
