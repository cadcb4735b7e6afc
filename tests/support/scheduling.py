"""How pytest-xdist shares the tests among processes: by file, or by their `xdist_group`."""

from __future__ import annotations

from xdist.scheduler.loadgroup import LoadGroupScheduling


class ByGroupOrFile(LoadGroupScheduling):
    """The tests of a file run in one process, so that what they share is made once.

    Tests of one `xdist_group` run in one process whatever their files.
    """

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return scope if scope != nodeid else nodeid.partition("::")[0]
