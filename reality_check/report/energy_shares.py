"""From what the counters of energy said to kilowatt hours of each stage of each method."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from reality_check.results import Energy
from reality_check.studies.energy_notes import PERIOD, notes_folder, read_notes

#: A worker that noted nothing for longer stood still (a sleeping laptop, a paused process): a
#: counter may have wrapped more than once meanwhile.
_LONGEST = 5 * PERIOD
_JOULES = 3.6e6  # of a kilowatt hour


class _Reading(NamedTuple):
    time: float
    joules: float


class _Stretch(NamedTuple):
    """Some seconds of one worker's work, between two of its notes."""

    begin: _Reading
    end: _Reading
    work: tuple[str, str]

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end.time - self.begin.time


@dataclass
class _Record:
    """One counter of one machine, as all workers there noted it."""

    part: str
    wraps_at: float | None
    stretches: list[_Stretch]


def read_energy(out_dir: Path) -> tuple[tuple[Energy, ...], tuple[str, ...]]:
    """What each stage of each method used, by part of the machines.

    All that a counter counts while one worker is at work is that worker's; what it counts while
    several are is divided evenly among them.

    Args:
        out_dir: output folder of the experiment.

    Returns:
        The energy; and why other counters could not be read, a sentence each.
    """
    records: dict[tuple[str, str], _Record] = {}
    hours: dict[tuple[str, str, str], float] = defaultdict(float)
    missing: dict[str, None] = {}
    for path in sorted(notes_folder(out_dir).glob("*.jsonl")):
        notes = read_notes(path)
        head = next(notes, None)
        if head is None or "machine" not in head:
            continue
        missing.update(dict.fromkeys(head["missing"]))
        later = list(notes)
        timed = set()
        for key, about in head["counters"].items():
            record = records.setdefault((head["machine"], key), _Record(**about, stretches=[]))
            stretches = list(_stretches(later, key))
            record.stretches += stretches
            if record.part not in timed:  # several processors work the same hours
                timed.add(record.part)
                for stretch in stretches:
                    hours[(*stretch.work, record.part)] += stretch.seconds / 3600
    joules: dict[tuple[str, str, str], float] = defaultdict(float)
    for record in records.values():
        for work, share in _shares(record):
            joules[(*work, record.part)] += share
    energy = tuple(Energy(*key, joules[key] / _JOULES, hours[key]) for key in sorted(hours))
    return energy, tuple(missing)


def _stretches(notes: Iterable[dict[str, Any]], key: str) -> Iterator[_Stretch]:
    for note, following in itertools.pairwise(n for n in notes if key in n.get("joules", {})):
        if note["work"] is None:
            continue
        begin, end = (_Reading(n["time"], n["joules"][key]) for n in (note, following))
        stretch = _Stretch(begin, end, (note["work"][0], note["work"][1]))
        if 0 <= stretch.seconds <= _LONGEST:
            yield stretch


def _shares(record: _Record) -> Iterator[tuple[tuple[str, str], float]]:
    """Work and its joules, piece by piece: between two readings, whoever made them."""
    starting = sorted(record.stretches, key=lambda stretch: stretch.begin.time)
    readings = sorted({reading for s in record.stretches for reading in (s.begin, s.end)})
    running: list[_Stretch] = []
    begun = 0
    for one, other in itertools.pairwise(readings):
        while begun < len(starting) and starting[begun].begin.time <= one.time:
            running.append(starting[begun])
            begun += 1
        running = [stretch for stretch in running if stretch.end.time > one.time]
        joules = _between(one.joules, other.joules, record.wraps_at)
        for stretch in running:
            yield stretch.work, joules / len(running)


def _between(one: float, other: float, wraps_at: float | None) -> float:
    """What a counter counted between two readings."""
    if other >= one:
        return other - one
    # Two processes that read at the same time may note it in the wrong order.
    if wraps_at is None or one - other < wraps_at / 2:
        return 0.0
    return other + wraps_at - one
