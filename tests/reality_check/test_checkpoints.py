from __future__ import annotations

import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from reality_check import checkpoints


def draws() -> list[float]:
    """Some numbers of every global generator; an odd count of Gaussians leaves one cached."""
    return [
        float(torch.rand(())),
        float(torch.randn(())),
        float(np.random.rand()),
        float(np.random.normal()),
        random.random(),
        random.gauss(0, 1),
    ]


def test_random_states_survive_a_checkpoint(tmp_path: Path) -> None:
    checkpoints.seed_everything(3)
    draws()  # the cached second Gaussian of numpy and of random belongs to the state
    checkpoints.save(tmp_path / "state.pt", {"random": checkpoints.random_states()})
    expected = [draws() for _ in range(3)]
    checkpoints.seed_everything(99)
    state = checkpoints.load(tmp_path / "state.pt")
    assert state is not None
    checkpoints.restore_random_states(state["random"])
    assert [draws() for _ in range(3)] == expected


def test_seeding_decides_every_generator() -> None:
    checkpoints.seed_everything(2**62 + 5)
    first = draws()
    checkpoints.seed_everything(2**62 + 5)
    assert draws() == first
    checkpoints.seed_everything(2**62 + 6)
    assert all(one != other for one, other in zip(draws(), first, strict=True))


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert checkpoints.load(tmp_path / "latest.pt") is None


class _Danger:
    def __reduce__(self) -> tuple[object, ...]:
        return (open, ("stolen", "w"))


def test_a_checkpoint_from_a_stranger_cannot_run_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state": _Danger()}, tmp_path / "evil.pt")
    with pytest.raises(pickle.UnpicklingError):
        checkpoints.load(tmp_path / "evil.pt")
    assert not (tmp_path / "stolen").exists()


def test_a_failed_save_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "latest.pt"
    checkpoints.save(path, {"epoch": 1})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        checkpoints.save(path, {"epoch": 2})
    assert checkpoints.load(path) == {"epoch": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["latest.pt"]
