"""What describes a folder of tables to other programs: Croissant 1.1 metadata."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

_MEDIA_TYPES = {
    ".csv": "text/csv",
    ".parquet": "application/x-parquet",
    ".pack": "application/zip",
}
#: The data type of a column whose values have these types, in schema.org; others are texts.
_DATA_TYPES = {
    frozenset({bool}): "Boolean",
    frozenset({int}): "Integer",
    frozenset({float}): "Float",
    frozenset({int, float}): "Float",
}
#: The terms of the standard's JSON-LD context that only get its prefix.
_TERMS = (
    "arrayShape citeAs column containedIn equivalentProperty extract field fileProperty fileObject "
    "fileSet format includes isArray isLiveDataset jsonPath key md5 parentField path recordSet "
    "references regex repeated replace samplingRate separator source subField transform"
)
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{term: f"cr:{term}" for term in _TERMS.split()},
}


def data_types(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the data type of each column, from records with the same keys: Float, Text, ..."""
    types = {}
    for name in records[0]:
        values = [record[name] for record in records]
        kinds = {float if isinstance(value, float) else type(value) for value in values}
        types[name] = _DATA_TYPES.get(frozenset(kinds - {type(None)}), "Text")
    return types


def croissant_json(
    about: Mapping[str, Any],
    files: Mapping[str, bytes],
    tables: Mapping[str, Mapping[str, str]],
) -> str:
    """Return the metadata of a folder as Croissant 1.1, which is JSON-LD.

    Args:
        about: further terms of schema.org about the whole, such as name, description and license.
        files: the described files by name.
        tables: the data types of the columns of each table, by the name of its file.
    """
    distribution = [
        {
            "@type": "cr:FileObject",
            "@id": name,
            "contentUrl": name,
            "encodingFormat": _MEDIA_TYPES[PurePath(name).suffix],
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        for name, content in files.items()
    ]
    record_sets = []
    for file, types in tables.items():
        table = PurePath(file).stem
        fields = [
            {
                "@type": "cr:Field",
                "@id": f"{table}/{column}",
                "dataType": f"sc:{data_type}",
                "source": {"fileObject": {"@id": file}, "extract": {"column": column}},
            }
            for column, data_type in types.items()
        ]
        record_sets.append({"@type": "cr:RecordSet", "@id": table, "field": fields})
    whole = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        **about,
        "distribution": distribution,
        "recordSet": record_sets,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
