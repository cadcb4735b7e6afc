"""Sealed archives: zip files with checksums of their content, validated when they are read.

The checksums detect damage and careless changes; they are not a signature, since anybody can
seal a changed archive again.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reality_check.utils.errors import UsageError
from reality_check.utils.schema_version import check_schema_version
from reality_check.utils.text import duplicates, strict_json

#: The file that lists all other files with their checksums.
CONTENTS = "pack.json"
#: Archives whose files have more bytes than this in total are refused without being read.
MOST_BYTES = 512 << 20
_MOST_FILES = 100_000
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)  # the same content gives the same bytes, whenever it is written
#: Each part of a path; none is hidden, leads upwards or is a drive.
_PART = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]*")


@dataclass(frozen=True)
class Archive:
    """The content of an archive.

    Attributes:
        about: plain data from the caller.
        files: contents by path; paths use slashes.
        checksum: a checksum of both, which does not depend on the compression.
    """

    about: dict[str, Any]
    files: dict[str, bytes]
    checksum: str


def seal(about: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """Return the bytes of an archive of ``files``, by path, and ``about``, which is plain data.

    The same content gives the same bytes.
    """
    listed = {name: _entry(content) for name, content in sorted(files.items())}
    contents = {**about, "files": listed}
    contents["checksum"] = _digest(_canonical_json(contents))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        text = strict_json(contents, indent=1, ensure_ascii=False) + "\n"
        for name, content in {CONTENTS: text.encode(), **dict(sorted(files.items()))}.items():
            info = zipfile.ZipInfo(name, _FIXED_DATE)
            info.external_attr = 0o644 << 16  # the permissions rw-r--r--
            is_compressed = name.endswith((".npz", ".png"))
            info.compress_type = zipfile.ZIP_STORED if is_compressed else zipfile.ZIP_DEFLATED
            archive.writestr(info, content, compresslevel=9)
    return stream.getvalue()


def unseal(path: Path, schema: str) -> Archive:
    """Read an archive and check that it is complete and unchanged.

    Args:
        path: the archive.
        schema: the value that ``about["schema"]`` must have.

    Raises:
        UsageError: the archive is missing, damaged, changed or of a newer version.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_size(path, archive.infolist())
            contents = _read_contents(path, archive, schema)
            files = _read_files(path, archive, contents["files"])
    except UsageError:
        raise
    except FileNotFoundError:
        raise UsageError(f"there is no {path}; name a pack or an output folder.") from None
    except Exception as error:  # zipfile and json raise nearly anything for a damaged file
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UsageError(f"{path} is no whole pack ({problem}); fetch or write it again.") from None
    sealed = {key: value for key, value in contents.items() if key != "checksum"}
    if contents.get("checksum") != _digest(_canonical_json(sealed)):
        raise _tampered(path, CONTENTS)
    return Archive(contents, files, contents["checksum"])


def _read_contents(path: Path, archive: zipfile.ZipFile, schema: str) -> dict[str, Any]:
    """Return the file :data:`CONTENTS`, after checking its schema and version."""
    contents = json.loads(archive.read(CONTENTS)) if CONTENTS in archive.namelist() else {}
    if not isinstance(contents, dict) or contents.get("schema") != schema:
        raise UsageError(
            f"{path} is a zip file but no pack; those are written by reality-check pack DIR."
        )
    check_schema_version(contents.get("version"), f"{path}: the version of the pack")
    return contents


def _check_size(path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    """Raise UsageError if the members are too many, or too large in total."""
    size = sum(info.file_size for info in members)
    if size > MOST_BYTES or len(members) > _MOST_FILES:
        raise UsageError(
            f"{path} would unpack to {size / 1e6:,.0f} MB in {len(members):,} files, more than any "
            f"pack ({MOST_BYTES / 1e6:,.0f} MB, {_MOST_FILES:,} files); it is not read."
        )


def _read_files(
    path: Path, archive: zipfile.ZipFile, listed: Mapping[str, Mapping[str, Any]]
) -> dict[str, bytes]:
    """Return the listed files of an archive, after comparing them with their checksums."""
    names = archive.namelist()
    if sorted(names) != sorted([CONTENTS, *listed]):
        # Files in only one of both lists, otherwise files that the archive has twice.
        unexpected = sorted({*names} ^ {CONTENTS, *listed}) or duplicates(names)
        raise UsageError(
            f"{path} holds other files than it lists ({unexpected[0]!r}); fetch or write it again."
        )
    for name in listed:
        if not all(map(_PART.fullmatch, name.split("/"))):
            raise UsageError(f"{path} holds a file with the path {name!r}; it is not read.")
    files = {name: archive.read(name) for name in listed}
    for name, content in files.items():
        if listed[name] != _entry(content):
            raise _tampered(path, name)
        if name.endswith(".npz"):
            with zipfile.ZipFile(io.BytesIO(content)) as arrays:
                _check_size(path, arrays.infolist())
    return files


def _tampered(path: Path, name: str) -> UsageError:
    return UsageError(
        f"{path} was changed after it was written: {name} does not have its checksum; fetch or "
        "write it again."
    )


def _entry(content: bytes) -> dict[str, Any]:
    """Return what :data:`CONTENTS` says about a file."""
    return {"sha256": _digest(content), "bytes": len(content)}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _canonical_json(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True).encode()
