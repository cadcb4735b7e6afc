"""``methods: [{from: PACK}]``: methods whose results come from a pack instead of trainings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from reality_check.utils.archive import unseal
from reality_check.utils.errors import UsageError
from reality_check.utils.paths import cache_folder, find_path
from reality_check.utils.progress_bar import say
from reality_check.utils.text import nearest, one_line

#: Name of the format; its version is that of all files.
SCHEMA = "reality-check-pack"
_KEYS = {"from", "methods", "sha256"}
_ON_THE_HUB = re.compile(
    r"hf://datasets/(?P<repo_id>[^/@]+/[^/@]+)/(?P<filename>[^@]+)@(?P<revision>[^@]+)"
)


def packed_methods(entry: Mapping[str, Any], beside: Path | None) -> list[dict[str, Any]]:
    """Return the methods of a pack as plain data, each with a reference to the pack.

    Args:
        entry: ``{from: PACK}``, or ``{from: PACK, methods: [NAME, ...]}`` for some of them. PACK is
            a path, ``hf://datasets/OWNER/NAME/FILE@REVISION``, or a URL with ``sha256: ...``.
        beside: the folder of the YAML, to which the path may be relative.

    Raises:
        UsageError: the file cannot be downloaded, is not a pack, or has no such method.
    """
    if odd_keys := sorted({*map(str, entry)} - _KEYS):
        raise UsageError(
            f"methods: unknown key {odd_keys[0]!r} beside from; methods of a pack are as they were "
            "run, so only their names can be chosen: {from: PACK, methods: [NAME, ...]}."
        )
    file = _file_of(str(entry["from"]), entry.get("sha256"), beside)
    archive = unseal(file, SCHEMA)
    # "given" lacks the keys that have their default, because another version may not know them.
    experiment = archive.about["given"]
    methods = {method["name"]: method for method in experiment["methods"]}
    chosen = entry.get("methods", list(methods))
    if not isinstance(chosen, list) or not chosen:
        raise UsageError(f"{file}: methods must be a list of names, such as {list(methods)[:2]}.")
    unknown = next((name for name in chosen if name not in methods), None)
    if unknown is not None:
        raise UsageError(
            f"{file} has no method {unknown!r}; it has {', '.join(methods)}."
            f"{nearest(str(unknown), methods)}"
        )
    packed = {
        "file": str(file.resolve()),
        "checksum": archive.checksum,
        "experiment": experiment["name"],
    }
    return [{**methods[name], "packed": packed} for name in chosen]


def _file_of(source: str, sha256: Any, beside: Path | None) -> Path:
    """Return the file of a pack, which is downloaded once if it is not on this machine.

    Raises:
        UsageError: the address is incomplete, or gives no such file.
    """
    is_url = re.match("https?://", source)
    if bool(is_url) != bool(re.fullmatch("[0-9a-f]{64}", str(sha256))):
        raise UsageError(
            f"methods: {{from: {source}, sha256: {sha256}}}: a URL needs the SHA-256 of its file "
            "(64 hexadecimal digits, as sha256sum FILE prints); a path or hf://... has none."
        )
    if is_url:
        from reality_check.utils.download import RemoteFile, download

        name = Path(urlsplit(source).path).name or "theirs.pack"
        remote = RemoteFile(name, (source,), f"sha256:{sha256}")
        return download(remote, cache_folder() / "packs" / str(sha256))
    return _from_hub(source) if source.startswith("hf://") else find_path(source, beside)


def _from_hub(source: str) -> Path:
    """Return a file of a data set of the Hugging Face Hub, from the cache if it is there.

    Raises:
        UsageError: the address is incomplete, or the file cannot be downloaded.
    """
    match = _ON_THE_HUB.fullmatch(source)
    if match is None:
        raise UsageError(
            f"methods: {source!r} is no file of the Hub; write "
            "hf://datasets/OWNER/NAME/FILE.pack@REVISION, with a commit, tag or branch."
        )
    try:
        from huggingface_hub import hf_hub_download, try_to_load_from_cache

        where: Any = {"repo_type": "dataset", **match.groupdict()}
        if not isinstance(try_to_load_from_cache(**where), str):
            say(f"Downloading {source}")
        return Path(hf_hub_download(**where))
    except ImportError:
        raise UsageError(
            f"{source} needs huggingface_hub; run pip install 'pml-extensions[hub]'."
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{source} could not be downloaded ({one_line(error)}).") from error
