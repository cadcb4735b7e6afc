from __future__ import annotations

import contextlib
import pickle
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from reality_check.utils import checkpoints

CPU = torch.device("cpu")


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
    checkpoints.save(tmp_path / "state.pt", {"random": checkpoints.random_states(CPU)})
    expected = [draws() for _ in range(3)]
    checkpoints.seed_everything(99)
    state = checkpoints.load(tmp_path / "state.pt")
    assert state is not None
    checkpoints.restore_random_states(state["random"], CPU)
    assert [draws() for _ in range(3)] == expected


def test_of_gpus_only_the_one_that_trains_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where training resumes, there may be fewer of them, or none."""
    gpus = [torch.tensor([number], dtype=torch.uint8) for number in range(4)]
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: gpus[device.index])
    monkeypatch.setattr(
        torch.cuda, "set_rng_state", lambda state, device: gpus[device.index].copy_(state)
    )
    third, first = torch.device("cuda", 2), torch.device("cuda", 0)
    checkpoints.save(tmp_path / "state.pt", {"random": checkpoints.random_states(third)})
    state = checkpoints.load(tmp_path / "state.pt")
    assert state is not None
    checkpoints.restore_random_states(state["random"], first)
    assert [int(gpu) for gpu in gpus] == [2, 1, 2, 3]
    checkpoints.restore_random_states(state["random"], CPU)
    assert "cuda" not in checkpoints.random_states(CPU)


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
    checkpoints.save(tmp_path / "evil.pt", {"state": _Danger()})
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


def flip_a_byte(path: Path, where: float = 0.6) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * where)] ^= 0x10
    path.write_bytes(content)


def test_a_changed_byte_and_a_torn_file_are_found(tmp_path: Path) -> None:
    path = tmp_path / "latest.pt"
    whole = {"weights": torch.arange(10_000.0), "epoch": 3}
    checkpoints.save(path, whole)
    flip_a_byte(path)
    torch.load(path, weights_only=True)  # torch itself does not see it
    with pytest.raises(checkpoints.Damaged, match=r"latest\.pt is damaged: its checksum is wrong"):
        checkpoints.load(path)
    for size in (0, 10, 20_000):
        checkpoints.save(path, whole)
        with path.open("rb+") as file:
            file.truncate(size)
        with pytest.raises(checkpoints.Damaged, match=r"latest\.pt is damaged"):
            checkpoints.load(path)


def test_any_changed_byte_is_found_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "latest.pt"
    checkpoints.save(path, {"weights": torch.arange(50.0), "epoch": 3})
    for part in range(0, 200):
        sound = path.read_bytes()
        flip_a_byte(path, part / 200)
        state = None
        with contextlib.suppress(checkpoints.Damaged):
            state = checkpoints.load(path)
        if state is not None:
            assert torch.equal(state["weights"], torch.arange(50.0))
            assert state["epoch"] == 3
        path.write_bytes(sound)


def test_others_read_a_checkpoint_and_one_without_a_checksum_is_refused(tmp_path: Path) -> None:
    checkpoints.save(tmp_path / "ours.pt", {"epoch": 3})
    assert torch.load(tmp_path / "ours.pt", weights_only=True) == {"epoch": 3}
    with zipfile.ZipFile(tmp_path / "ours.pt") as archive:
        assert archive.testzip() is None
        assert archive.comment.startswith(b"sha256:")
    torch.save({"epoch": 4}, tmp_path / "plain.pt")
    with pytest.raises(checkpoints.Damaged, match=r"plain\.pt is damaged: its checksum is missing"):
        checkpoints.load(tmp_path / "plain.pt")
