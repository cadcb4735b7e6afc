"""The JSON schema of an experiment's YAML, which editors use to complete, explain and check it.

It is the schema of :class:`Experiment`, extended by what only files have: names in place of
mappings, bases and variants. No key that a base may give is required, so the schema accepts some
files that ``reality-check check`` refuses, but it refuses no correct file.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reality_check._version import SCHEMA_VERSION
from reality_check.config.named import GROUPS
from reality_check.config.plugins import plugins
from reality_check.config.schema import Experiment
from reality_check.config.values import Strict
from reality_check.utils.config_files import config_files

Schema = dict[str, Any]

#: Mappings that must be complete; keys of all others may come from a base.
_COMPLETE = ("Range", "Choices")
_STRING: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_NULL: Schema = {"type": "null"}
_READER = "How the images are read: docs/datasets.md."
_BASE = "A name or a file that this starts from; the keys next to it are the differences."
#: The schema of an entry that takes methods from a pack.
_FROM_PACK: Schema = {
    "type": "object",
    "properties": {
        "from": {**_STRING, "description": "A pack, in which these methods have their results."},
        "sha256": {**_STRING, "description": "That of the file, if it is given by URL."},
        "methods": {"type": "array", "items": _STRING, "description": "Their names, if not all."},
    },
    "required": ["from"],
    "additionalProperties": False,
}
#: Keywords that are replaced: one that draft 7 does not have, and ``oneOf``, because a mapping
#: without the keys that a base gives may fit several kinds.
_RENAMED = {"prefixItems": "items", "oneOf": "anyOf"}
#: Types that a key also accepts, and that validation converts.
_ALTERNATIVES: dict[tuple[str, str], list[Schema]] = {
    ("Model", "weights"): [_NULL],
    ("Model", "remove_last_bn_relu"): [{"type": "boolean"}],
    ("Input", "mean"): [_NUMBER],
    ("Input", "std"): [_NUMBER],
    ("Method", "miner"): [_STRING],
    ("Method", "warm_start"): [_STRING],
    ("Protocol", "split"): [_STRING],
}


def json_schema(beside: Path | None = None) -> Schema:
    """Return the schema as plain data, in draft 7, which all editors support.

    Args:
        beside: the folder of the YAML, whose own files are suggested as names, too.
    """
    top = Experiment.model_json_schema(by_alias=True)
    definitions: dict[str, Schema] = top.pop("$defs")
    definitions["Experiment"] = top
    classes: list[type[Strict]] = [Strict]
    for model in classes:  # subclasses are appended in the loop
        classes += model.__subclasses__()
        if model.__name__ in definitions:
            _adapt(definitions[model.__name__], model)
    for key, group in GROUPS.items():  # each takes a name, or a mapping that may have a base
        names = _name_schemas(config_files(group, beside), key)
        mappings = _mapping_schemas(top["properties"][key])
        top["properties"][key] |= {"anyOf": names + mappings}
        for mapping in mappings:
            _add_base(definitions[mapping["$ref"].rpartition("/")[2]], names)
    _add_methods(top["properties"], definitions["Method"], beside)
    _add_base(top, _name_schemas(config_files("experiments"), "experiment"))
    top["properties"]["variants"] = {
        "description": "By name, keys and values on top; `variant` chooses.",
        "type": "object",
        "additionalProperties": _ref("Experiment"),
    }
    top["properties"]["schema_version"] = {
        "description": "The version of the format (docs/stability.md).",
        "enum": [*range(1, SCHEMA_VERSION + 1)],
    }
    top["properties"]["suite"] = {
        "description": "Data sets or experiments, for one verdict over all: docs/suites.md.",
        "type": "array",
        "items": {"anyOf": [_STRING, _ref("Experiment")]},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "An experiment of reality-check",
        "allOf": [_ref("Experiment")],
        "anyOf": [
            {"required": ["dataset", "model", "protocol", "methods"]},
            {"required": ["base"]},
            {"required": ["variants"]},
            {"required": ["suite"]},
        ],
        "definitions": _draft_7(definitions),
    }


def _adapt(definition: Schema, model: type[Strict]) -> None:
    """Add the descriptions of the keys, and require no key that a base may give."""
    name, descriptions = model.__name__, _attribute_docstrings(model)
    if name not in _COMPLETE:
        definition.pop("required", None)
    definition.pop("title", None)
    definition.pop("description", None)  # written for readers of the code
    for key, value in definition.get("properties", {}).items():
        value.pop("title", None)
        if alternatives := _ALTERNATIVES.get((name, key)):
            original = {keyword: value.pop(keyword) for keyword in [*value] if keyword != "default"}
            # A key with several types has them in its own ``anyOf``.
            value["anyOf"] = [*original.pop("anyOf", [original]), *alternatives]
        default = _READER if key == "reader" else ""
        value.setdefault("description", descriptions.get(key, default))


def _attribute_docstrings(model: type[Strict]) -> dict[str, str]:
    """Return the docstring below each key of a class or of its bases.

    Pydantic's ``use_attribute_docstrings`` reads it at every start, which takes 75 ms.
    """
    docstrings = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, Strict):
            (code,) = ast.parse(inspect.getsource(cls)).body
            assert isinstance(code, ast.ClassDef)
            for pair in itertools.pairwise(code.body):
                match pair:  # an annotated key with a string below it
                    case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(
                        value=ast.Constant(str(text_below))
                    ):
                        alias = model.model_fields[key].alias or key
                        docstrings[alias] = " ".join(text_below.split())
    return docstrings


def _mapping_schemas(value: Schema) -> list[Schema]:
    """Return the schemas of the mappings that a key accepts: one, or one per tag.

    They are removed from ``value``, the schema of the key.
    """
    if "$ref" in value:
        return [{"$ref": value.pop("$ref")}]
    # Pydantic 2.7 wraps a reference in a list, ``allOf``, if there are other keywords beside it.
    return value.pop("oneOf", None) or value.pop("allOf", [])


def _name_schemas(files: Iterable[str], key: str) -> list[Schema]:
    """Return a schema of the known names, which editors suggest, and one of any path."""
    return [{"enum": sorted({*files, *plugins(key)})}, _STRING]


def _add_base(definition: Schema, names: list[Schema]) -> None:
    definition["properties"]["base"] = {"anyOf": names, "description": _BASE}


def _add_methods(properties: Schema, method: Schema, beside: Path | None) -> None:
    """Define what ``methods`` may be: a list of names, mappings and packs, or changes."""
    names = _name_schemas(config_files("methods", beside), "method")
    entry = {"anyOf": [*names, _ref("Method"), _FROM_PACK]}
    _add_base(method, names)
    changes = {"type": "object", "additionalProperties": {"anyOf": [_ref("Method"), _NULL]}}
    method["properties"]["model"] |= {"anyOf": [_STRING, _ref("Model")]}
    for unwanted in ("type", "additionalProperties"):
        # Pydantic 2.7 has only the first.
        method["properties"]["model"].pop(unwanted, None)
    properties["methods"] = {
        "description": properties["methods"]["description"],
        "anyOf": [
            {"type": "array", "items": entry, "minItems": 1},
            {**changes, "description": "On top of a base: changes by method, or of all."},
        ],
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


def _draft_7(value: Any) -> Any:
    """Translate draft 2020-12 of JSON Schema to draft 7."""
    if isinstance(value, list):
        return list(map(_draft_7, value))
    if not isinstance(value, dict):
        return value
    value.pop("discriminator", None)
    renamed = {_RENAMED.get(key, key): item for key, item in value.items()}
    if "$ref" in renamed:
        # In draft 7, all keys next to a reference are ignored, even a description.
        target = renamed.pop("$ref").replace("#/$defs/", "#/definitions/")
        return {"allOf": [{"$ref": target}], **renamed} if renamed else {"$ref": target}
    return {key: _draft_7(item) for key, item in renamed.items()}
