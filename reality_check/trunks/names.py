"""Which trunk a name in a YAML means."""

from __future__ import annotations

from collections.abc import Callable

from reality_check.errors import UsageError, nearest
from reality_check.trunks.own import TRUNKS, OwnTrunk
from reality_check.trunks.published import TrunkSource, import_library
from reality_check.trunks.timm_trunk import TimmTrunk
from reality_check.trunks.torchvision_trunk import TorchvisionTrunk, torchvision_names

_LIBRARIES: dict[str, Callable[[str], TrunkSource]] = {
    "torchvision": TorchvisionTrunk,
    "timm": TimmTrunk,
}


def find_source(trunk: str) -> TrunkSource:
    """Where a trunk comes from.

    ``LIBRARY:NAME`` says it. A name without colon is, in this order, one of this package, an import
    path if it has a dot, torchvision's, timm's.

    Raises:
        UsageError: nothing has that name; names the nearest that exists.
    """
    library, colon, name = trunk.partition(":")
    if colon:
        if library not in _LIBRARIES:
            raise UsageError(
                f"trunk {trunk!r} names the library {library!r}; write torchvision:{name}, "
                f"timm:{name}, or an import path such as my_models.MyTrunk."
            )
        return _LIBRARIES[library](name)
    if trunk in TRUNKS or "." in trunk:
        return OwnTrunk(trunk)
    return _find_in_libraries(trunk)


def _find_in_libraries(trunk: str) -> TrunkSource:
    known = list(TRUNKS)
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
        problem = f" To use a name of torchvision or timm: {error}"
    raise UsageError(
        f"there is no trunk named {trunk!r}; write {', '.join(TRUNKS)}, a name of torchvision or "
        f"timm such as resnet50, or an import path such as my_models.MyTrunk."
        f"{nearest(trunk, known)}{problem}"
    )
