"""Find a trunk by its name in a YAML."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from reality_check.config.plugins import find_plugin, plugins
from reality_check.models.hf_trunk import HfTrunk
from reality_check.models.own_trunks import TRUNKS, OwnTrunk
from reality_check.models.published_weights import TrunkSource, import_library
from reality_check.models.timm_trunk import TimmTrunk
from reality_check.models.torchvision_trunk import TorchvisionTrunk, torchvision_names
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

_LIBRARIES: dict[str, Callable[[str], TrunkSource]] = {
    "torchvision": TorchvisionTrunk,
    "timm": TimmTrunk,
    "hf": HfTrunk,
}


def find_source(trunk: str) -> TrunkSource:
    """Return the source of a trunk.

    ``LIBRARY:NAME`` names the library. A name without colon is looked up in this package, as an
    import path (if it has a dot), among plugins (:mod:`reality_check.config.plugins`), in
    torchvision and in timm, in this order.

    Raises:
        UsageError: if nothing has that name; the message gives the nearest name that exists.
    """
    library, colon, name = trunk.partition(":")
    if colon:
        if library not in _LIBRARIES:
            raise UsageError(
                f"trunk {trunk!r} names the library {library!r}; write torchvision:{name}, "
                f"timm:{name}, hf:{name}, or an import path such as my_models.MyTrunk."
            )
        return _LIBRARIES[library](name)
    if "." in trunk or _is_plugin(trunk) or trunk in TRUNKS:
        return OwnTrunk(trunk)
    return _find_in_libraries(trunk)


def is_users(trunk: str) -> bool:
    """Return whether a trunk is the user's, or of a plugin; no library is imported for it."""
    return ":" not in trunk and ("." in trunk or trunk in plugins("trunk"))


def _is_plugin(trunk: str) -> bool:
    """Return whether a plugin has the name; raise UsageError if something else has it too."""
    return (
        trunk in plugins("trunk") and find_plugin("trunk", trunk, _find_others(trunk)) is not None
    )


def _find_others(trunk: str) -> list[tuple[str, str]]:
    """Return (package, full name) of each trunk of that name that is not a plugin's."""
    if trunk in TRUNKS:
        cls = TRUNKS[trunk]
        return [("reality_check", f"{cls.__module__}.{cls.__qualname__}")]
    names = []
    with contextlib.suppress(UsageError):  # the library is not installed
        if trunk in torchvision_names(import_library("torchvision", f"trunk {trunk}").models):
            names.append(("torchvision", f"torchvision:{trunk}"))
    with contextlib.suppress(UsageError):
        if import_library("timm", f"trunk {trunk}").is_model(trunk):
            names.append(("timm", f"timm:{trunk}"))
    return names


def _find_in_libraries(trunk: str) -> TrunkSource:
    """Return the source of a name of torchvision or timm; raise UsageError if neither has it."""
    known = [*TRUNKS, *plugins("trunk")]
    problem = ""
    try:
        models = import_library("torchvision", f"trunk {trunk}").models
        if trunk in torchvision_names(models):
            return TorchvisionTrunk(trunk)
        known += torchvision_names(models)
        timm = import_library("timm", f"trunk {trunk}")
        if timm.is_model(trunk):
            return TimmTrunk(trunk)
        known += timm.list_models()
    except UsageError as error:
        if not nearest(trunk, known):
            # The name is most likely the library's, so the library's error is the cause.
            raise
        problem = f" To use a name of torchvision or timm: {error}"
    raise UsageError(
        f"there is no trunk named {trunk!r}; write {', '.join(TRUNKS)}, a name of torchvision or "
        f"timm such as resnet50, or an import path such as my_models.MyTrunk."
        f"{nearest(trunk, known)}{problem}"
    )
