"""How much memory of a GPU is taken."""

from __future__ import annotations

import weakref

import torch


class Memory:
    """The memory of one GPU, as torch's caching allocator sees it.

    Args:
        total: bytes.

    Attributes:
        live: bytes of tensors.
        reserved: bytes that the allocator has taken, and keeps until its cache is emptied.
        peak: the most that ``live`` has been.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.live = self.reserved = self.peak = 0
        self._fail_in: int | None = None
        # By the address of torch's storage, which is not given out again before an entry is gone.
        self._allocations: weakref.WeakValueDictionary[int, Allocation] = (
            weakref.WeakValueDictionary()
        )

    def reset(self) -> None:
        """Forget peaks, caches and failures that were asked for."""
        self._fail_in = None
        self.peak = self.reserved = self.live

    def fail_in(self, count: int) -> None:
        """Have the ``count``-th allocation from now fail."""
        self._fail_in = count

    def allocation(self, tensor: torch.Tensor) -> Allocation:
        """What a tensor lies in, which is new unless a tensor that is alive lies there too.

        Raises:
            torch.OutOfMemoryError: it does not fit.
        """
        storage = tensor.untyped_storage()
        found = self._allocations.get(storage._cdata)
        if found is None:
            found = self._allocations[storage._cdata] = Allocation(self, storage.nbytes())
        return found

    def holds(self, storage: torch.UntypedStorage) -> bool:
        """Whether some memory is this GPU's."""
        return storage._cdata in self._allocations

    def take(self, size: int) -> None:
        """Count an allocation."""
        if self._fail_in is not None:
            self._fail_in -= 1
        if self._fail_in == 0 or self.live + size > self.total:
            self._fail_in = None
            free = self.total - self.live
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {size} bytes, {free} are free (simulated)."
            )
        self.live += size
        self.reserved = max(self.reserved, self.live)
        self.peak = max(self.peak, self.live)

    def empty_cache(self) -> None:
        """Give back what no tensor lies in."""
        self.reserved = self.live


class Allocation:
    """A piece of memory, for as long as a tensor refers to it."""

    def __init__(self, memory: Memory, size: int) -> None:
        memory.take(size)
        self._memory, self._size = memory, size

    def __del__(self) -> None:
        if hasattr(self, "_size"):  # not if it did not fit
            self._memory.live -= self._size
