"""The Hugging Face Hub, to which a folder is pushed as a data set."""

from __future__ import annotations

import re
from pathlib import Path

from reality_check.utils.errors import UsageError
from reality_check.utils.text import one_line


def check_target(name: str) -> None:
    """Check that a data set can be pushed, before anything is written or sent.

    Raises:
        UsageError: it is not named OWNER/NAME, there is no token, or huggingface_hub is missing.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise UsageError(f"--push {name}: write OWNER/NAME, as the Hub shows your data sets.")
    try:
        from huggingface_hub import get_token
    except ImportError:
        raise UsageError("--push needs: pip install 'pml-extensions[hub]'.") from None
    if not get_token():
        raise UsageError(
            "--push needs a token of the Hub: run hf auth login, or set HF_TOKEN to one that may "
            "write."
        )


def push(folder: Path, name: str) -> str:
    """Upload a folder as a data set, which is created if there is none, and return its URL.

    Args:
        folder: the files.
        name: the data set, as OWNER/NAME.

    Raises:
        UsageError: the Hub refuses it, or cannot be reached.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        url = api.create_repo(name, repo_type="dataset", exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, repo_type="dataset")
    except Exception as error:  # of requests or httpx, by the version of huggingface_hub
        raise UsageError(
            f"{folder} was written, but could not be pushed to {name} ({one_line(error)})."
        ) from error
    return url
