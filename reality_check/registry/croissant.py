"""What describes a folder of tables to other programs: Croissant 1.1 metadata."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

_MEDIA_TYPES = {
    ".csv": "text/csv",
    ".parquet": "application/x-parquet",
    ".pack": "application/zip",
}
#: Data types of schema.org by those of Arrow; others are texts.
_DATA_TYPES = {"bool": "Boolean", "int64": "Integer", "double": "Float"}
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


def croissant_json(
    about: Mapping[str, Any],
    files: Mapping[str, bytes],
    tables: Mapping[str, pyarrow.Table],
) -> str:
    """Return the metadata of a folder as Croissant 1.1, which is JSON-LD.

    Args:
        about: further terms of schema.org about the whole, such as name, description and license.
        files: the described files by name.
        tables: the tables by the names of their files.
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
    for file, content in tables.items():
        table = PurePath(file).stem
        fields = [
            {
                "@type": "cr:Field",
                "@id": f"{table}/{column.name}",
                "dataType": f"sc:{_DATA_TYPES.get(str(column.type), 'Text')}",
                "source": {"fileObject": {"@id": file}, "extract": {"column": column.name}},
            }
            for column in content.schema
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
    return json.dumps(whole, indent=1) + "\n"
