"""Page-locked memory, and the copies from and to it that are under way.

A copy that the host does not wait for reads or writes host memory at some time before the host
next waits. Whoever changes, frees or reads that memory earlier may be lucky for years. Here nobody
is: what comes from a GPU arrives when the host waits, and not before, and what goes to one must by
then still be what it was.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simulated_cuda._tensor import plainly

_NOT_YET = 0xAB  # every byte of what has not arrived


class Block(np.ndarray):
    """Page-locked bytes; a subclass since plain arrays take no weak references."""


@dataclass
class Upload:
    """A copy to a GPU that reads host memory until the host waits.

    Attributes:
        block: what it reads from; torch's allocator keeps it from being used again meanwhile.
        memory: the part of it, weakly.
        before: its bytes when the copy was told.
        place: where that was.
    """

    block: Block | None
    memory: Callable[[], Block | None]
    span: slice
    before: bytes
    place: str


class PageLocked:
    """All page-locked memory, and what happens to it."""

    def __init__(self) -> None:
        self._blocks: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()
        self._uploads: list[Upload] = []
        self._downloads: list[tuple[Tensor, Tensor]] = []

    def pin(self, tensor: Tensor) -> Tensor:
        """A copy in page-locked memory."""
        if self.is_pinned(tensor):
            return tensor
        with plainly():
            block = np.empty(max(1, tensor.numel() * tensor.element_size()), np.uint8).view(Block)
            self._blocks[block.ctypes.data] = block
            flat = torch.frombuffer(block, dtype=torch.uint8)[: tensor.numel() * tensor.itemsize]
            pinned = flat.view(tensor.dtype).view(tensor.shape)
            return pinned.copy_(tensor)

    def is_pinned(self, tensor: Tensor) -> bool:
        """Whether a CPU tensor lies in page-locked memory, by its address, as CUDA tells it."""
        return self._block_of(tensor) is not None

    def _block_of(self, tensor: Tensor) -> Block | None:
        address = tensor.data_ptr()
        for start, block in list(self._blocks.items()):
            if start <= address < start + block.nbytes:
                return block
        return None

    def upload_from(self, tensor: Tensor, place: str) -> None:
        """A copy from page-locked memory begins, and the host continues."""
        block = self._block_of(tensor)
        assert block is not None
        start = tensor.data_ptr() - block.ctypes.data
        span = slice(start, start + _extent(tensor))
        # torch knows its own memory by the address that it begins at. Of memory that an array of
        # NumPy lies in between it does not know that a copy needs it.
        own = tensor.untyped_storage().data_ptr() == block.ctypes.data
        kept = block if own else None
        self._uploads.append(Upload(kept, weakref.ref(block), span, block[span].tobytes(), place))

    def download(self, value: Tensor, to: Tensor) -> Tensor:
        """A copy from a GPU begins, and the host continues; the bytes arrive when it waits."""
        with plainly():
            to.view(-1).view(torch.uint8).fill_(_NOT_YET)
            self._downloads.append((value.clone(), to))
        return to

    def arrive(self) -> None:
        """The host waits: all copies are over.

        Raises:
            RuntimeError: page-locked memory was changed or freed while a copy read it.
        """
        uploads, downloads = self._uploads, self._downloads
        self.forget()
        with plainly():
            for value, to in downloads:
                to.copy_(value)
        for upload in uploads:
            memory = upload.memory()
            if memory is None:
                raise RuntimeError(
                    f"page-locked memory was freed while a copy of {upload.place} read it "
                    "(simulated; use after free)"
                )
            if memory[upload.span].tobytes() != upload.before:
                raise RuntimeError(
                    f"page-locked memory was written while a copy of {upload.place} read it "
                    "(simulated; wait for the copy first, or take other memory)"
                )

    def forget(self) -> None:
        """No copy is under way."""
        self._uploads, self._downloads = [], []


def _extent(tensor: Tensor) -> int:
    """How many bytes lie between a tensor's first and last."""
    if tensor.numel() == 0:
        return 0
    steps = (
        stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    )
    return (1 + sum(steps)) * tensor.element_size()
