"""Plain data from YAML text and back, safely."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar

import yaml
from yaml.constructor import SafeConstructor

from reality_check._version import SCHEMA_VERSION
from reality_check.utils.config_files import is_shipped
from reality_check.utils.errors import UsageError
from reality_check.utils.schema_version import check_schema_version

#: Maximum number of values in a file, far more than any experiment has. With nested aliases, a few
#: lines can stand for billions.
_MOST_VALUES = 1_000_000


_TAG = "tag:yaml.org,2002:"
#: YAML kinds of values that are not text, or not plain.
_SPECIAL_KINDS = "bool int float timestamp value merge binary omap pairs set"
#: Words that are the same number or flag in YAML 1.1 and 1.2.
_UNAMBIGUOUS = re.compile(
    r"true|false|[-+]?((?!0[0-9]+$)(\.[0-9]+|[0-9]+\.?[0-9]*)(e[-+]?[0-9]+)?|\.inf)|\.nan", re.I
)


class Unquoted(str):
    """An unquoted word with a special meaning in YAML 1.1 only: 010 (8), 1_000, 12:30:00, yes.

    If its key takes text, a number or a flag, it is read as such; elsewhere it is ambiguous.
    """


def _construct_word(loader: Any, node: yaml.Node) -> Any:
    """Return the number or flag that a word is, or :class:`Unquoted` if it is ambiguous."""
    text = loader.construct_scalar(node)
    if not _UNAMBIGUOUS.fullmatch(text):
        return Unquoted(text)
    # (True, False): the word counts as one without quotes, and a tag in the text is ignored.
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))
    return SafeConstructor.yaml_constructors[tag](loader, node)


class _Plain:
    """Mix-in for loaders that accepts only values that JSON has, too, and no key twice."""

    yaml_constructors: ClassVar = SafeConstructor.yaml_constructors | {
        _TAG + kind: _construct_word for kind in _SPECIAL_KINDS.split()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping as the base class does, but refuse a key that is given twice."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"the key {key.value!r} is given twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)  # type: ignore[misc]


class _Loader(_Plain, yaml.SafeLoader):
    """Safe loader that reads 1e-4 as a number, as YAML 1.2 does, and limits aliases."""

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and _size(node, {}) > _MOST_VALUES:
            problem = f"its aliases (*name) stand for more than {_MOST_VALUES:,} values"
            raise yaml.composer.ComposerError(None, None, problem, node.start_mark)
        return node


class _FastLoader(_Plain, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Faster loader, only for shipped files, because deep nesting would crash the process."""


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes texts that :class:`_Loader` would read as numbers or as other texts."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = '"' if {*"\x85\u2028\u2029"} & {*data} else None  # line ends in YAML only
        return self.represent_scalar(f"{_TAG}str", data, style)


_Dumper.add_representer(str, _Dumper.represent_str)


for _class in (_Loader, _FastLoader, _Dumper):
    _class.add_implicit_resolver(
        f"{_TAG}float",
        re.compile(r"^[-+]?(\.[0-9]+|[0-9]+\.?[0-9]*(?=[eE]))([eE][-+]?[0-9]+)?$"),
        list("-+.0123456789"),
    )


def parse_yaml(text: str) -> Any:
    """Parse YAML text safely."""
    return unshared(_parse(text))


@lru_cache(maxsize=8)  # a run reads its locked experiment six times
def _parse(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)


def parse_word(text: str) -> Any:
    """Parse a text as one plain YAML value: quotes, brackets and comments have no meaning."""
    loader = _Loader("")
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))  # a word without quotes
    return loader.construct_object(yaml.ScalarNode(tag, text))


def dump_yaml(data: Any, compact: bool = False) -> str:
    """Write data as YAML text, with keys in their order; the inverse of :func:`parse_yaml`.

    Args:
        compact: whether ranges and other collections without inner ones take one line.
    """
    return yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None if compact else False,
    )


def dump_file(data: Mapping[str, Any]) -> str:
    """Write the keys of a file that :func:`read_yaml` reads, after the version of its format."""
    return dump_yaml({"schema_version": SCHEMA_VERSION, **data})


def unshared(data: Any, depth: int = 0) -> Any:
    """Copy data without shared parts, so that overrides do not change YAML's aliases too."""
    if depth > 50:
        raise yaml.YAMLError("nested too deeply")
    if isinstance(data, Mapping):
        return {key: unshared(value, depth + 1) for key, value in data.items()}
    if isinstance(data, list):
        return [unshared(value, depth + 1) for value in data]
    return data


def _size(node: yaml.Node, sizes: dict[int, float]) -> float:
    """Return the number of values of a node with aliases expanded; infinite for a cycle.

    ``sizes`` has the results so far, by the id of the node.
    """
    if id(node) not in sizes:
        sizes[id(node)] = math.inf  # found if the node contains itself
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        # The children of a mapping are pairs of key and value.
        parts = itertools.chain(*children) if isinstance(node, yaml.MappingNode) else children
        sizes[id(node)] = 1 + sum(_size(part, sizes) for part in parts)
    return sizes[id(node)]


@cache
def _parse_shipped(path: Path) -> Any:
    return yaml.load(path.read_text("utf-8"), Loader=_FastLoader)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read one YAML mapping safely, without its ``schema_version``, which is checked.

    Raises:
        UsageError: the file cannot be read, is not YAML (the message names the line), or is not a
            mapping, or was written for a newer program.
    """
    try:
        data = (
            unshared(_parse_shipped(path))
            if is_shipped(path)
            else parse_yaml(path.read_text("utf-8"))
        )
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deep; close its brackets.") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an int of 5,000 digits
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not valid YAML"
        raise UsageError(f"{path}{line}: {problem}.") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path} must hold a mapping of keys to values.")
    check_schema_version(data.pop("schema_version", 1), f"{path}: schema_version")
    return data
