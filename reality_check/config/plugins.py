"""Names that installed packages add to a YAML, by entry points.

A package declares them in its metadata. Once it is installed, they work like the names of this
package::

    [project.entry-points."reality_check.losses"]
    SharpLoss = "sharp_losses.sharp:SharpLoss"

There are groups for losses, metrics, trunks, trackers, columns of reports and data sets, which are
functions that return a :class:`reality_check.data.ImageSet`. A package is imported when one of its
names is used or shown, not before.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from reality_check.utils.errors import UsageError, reason

#: The entry point group of each kind.
GROUPS = {
    "loss": "reality_check.losses",
    "metric": "reality_check.metrics",
    "dataset": "reality_check.datasets",
    "trunk": "reality_check.trunks",
    "tracker": "reality_check.trackers",
    "column": "reality_check.columns",
}
#: The word for each kind in messages.
WORDS = {kind: kind for kind in GROUPS} | {"dataset": "data set"}
#: Names that a YAML can contain: there, names with a dot are import paths, and names with a colon
#: belong to a library.
_USABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]*")


@dataclass(frozen=True)
class Plugin:
    """One name that an installed package adds.

    Attributes:
        kind: a key of :data:`GROUPS`.
        entry: its name in a YAML, the location of the object, and its distribution.
    """

    kind: str
    entry: EntryPoint

    @property
    def title(self) -> str:
        """The name of the package and its version."""
        return f"{self.entry.dist.name} {self.entry.dist.version}" if self.entry.dist else "unknown"

    @property
    def import_path(self) -> str:
        """The import path that names the object without the entry point."""
        # ``module:object [extras]``
        return self.entry.value.partition("[")[0].strip().replace(":", ".")

    def load(self) -> Any:
        """Import the class or function.

        Raises:
            UsageError: the package cannot be imported, has no such object, or the object is not
                callable.
        """
        try:
            target = self.entry.load()
        except (Exception, SystemExit) as error:
            raise self._unusable(reason(error)) from error
        if not callable(target):
            raise self._unusable(f"it is of type {type(target).__name__}, no class or function")
        return target

    def _unusable(self, why: str) -> UsageError:
        return UsageError(
            f"{WORDS[self.kind]} {self.entry.name!r} comes from the installed package "
            f"{self.title}, whose {self.entry.value} cannot be used ({why.rstrip('.')}); fix or "
            "uninstall that package, or use another name."
        )


def plugins(kind: str) -> dict[str, list[Plugin]]:
    """Return the plugins of a kind by name; several packages may share a name."""
    return _installed(kind, tuple(sys.path)) if kind in GROUPS else {}


@lru_cache(maxsize=16)
def _installed(kind: str, path: tuple[str, ...]) -> dict[str, list[Plugin]]:
    """Return the plugins on a ``sys.path``, cached because reading all metadata is slow.

    ``path`` is only the key of the cache; Python reads ``sys.path`` itself.
    """
    installed = [Plugin(kind, entry) for entry in entry_points(group=GROUPS[kind])]
    by_name: dict[str, list[Plugin]] = {}
    for plugin in sorted(installed, key=lambda plugin: (plugin.entry.name, plugin.title)):
        by_name.setdefault(plugin.entry.name, []).append(plugin)
    return by_name


def find_plugin(kind: str, name: str, others: Iterable[tuple[str, str]] = ()) -> Plugin | None:
    """Return the plugin of that name, or ``None``.

    Args:
        kind: a key of :data:`GROUPS`; other kinds have no plugins.
        name: the name in the YAML.
        others: other owners of the name, each with the import path of its object.

    Raises:
        UsageError: several owners have the name.
    """
    candidates = plugins(kind).get(name, [])
    if not candidates:
        return None
    claimants = [*others, *((plugin.title, plugin.import_path) for plugin in candidates)]
    if len(claimants) > 1:
        owners = " and ".join(owner for owner, _ in claimants)
        raise UsageError(
            f"{WORDS[kind]} {name!r} is a name of {owners}; write which: "
            f"{' or '.join(path for _, path in claimants)}."
        )
    return candidates[0] if is_usable(name) else None


def is_usable(name: str) -> bool:
    """Return whether a YAML can contain the name of a plugin."""
    return _USABLE.fullmatch(name) is not None
