"""What processes do at one entry of the cache; :class:`support.preloaded.Started` forks them."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

from reality_check.data import _cores, decode_files, list_image_folder, make_glyphs
from reality_check.data.cache import decoded

HELD = 24


def build(words: tuple[str, ...]) -> int:
    """Decode the folder words[0] and print the fingerprint.

    A line for each image is written to words[1]. While the file words[2] exists, HELD images are
    decoded and no more. No file grows beyond words[3] bytes, if that is not 0.
    """
    folder, log, hold, limit = words
    real, done = decoded.decode_image, []

    def held(*arguments: Any) -> Any:
        while len(done) >= HELD and Path(hold).exists():
            time.sleep(0.01)
        done.append(1)
        with open(log, "a") as file:
            file.write("one\n")
        return real(*arguments)

    decoded.decode_image = held
    _cores.usable_cores = lambda: 1
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit) or soft, hard))
    try:
        print(decode_files(list_image_folder(folder), 8).fingerprint())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))  # what it says is a file, too
    return 0


def draw_glyphs(words: tuple[str, ...]) -> int:
    """Print the fingerprint of the glyphs."""
    print(make_glyphs(40, 8).fingerprint())
    return 0
