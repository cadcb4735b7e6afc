"""Values of a loss that change between the phases of a training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from pml_extensions.losses._float32 import Float32Loss


class PhasedLoss(Float32Loss):
    """A PML loss with changeable numbers, held as buffers so that a checkpoint resumes its phase.

    A subclass lists each name with its check in ``phase_checks`` and calls
    ``_register_phase({name: value, ...})`` once in its constructor.
    """

    phase_checks: ClassVar[Mapping[str, Callable[[str, Any], float]]] = {}

    def set_phase(self, **values: float) -> None:
        """Change the named values from the next forward pass on; the others stay.

        Args:
            **values: New values by name.

        Raises:
            ValueError: A name is unknown or a value is not allowed; then nothing is changed.
        """
        for name, number in self._checked(values).items():
            self.get_buffer(name).fill_(number)

    def _register_phase(self, values: Mapping[str, float]) -> None:
        for name, number in self._checked(values).items():
            # float64, because float32 would round what the user wrote (k1=0.93) to 8 digits; as
            # zero-dimensional tensors they do not change the precision of the computation.
            self.register_buffer(name, torch.tensor(number, dtype=torch.float64))

    def _checked(self, values: Mapping[str, Any]) -> dict[str, float]:
        unknown = [name for name in values if name not in self.phase_checks]
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no phase value {unknown[0]!r}; "
                f"the names are {', '.join(self.phase_checks)}."
            )
        return {name: self.phase_checks[name](name, value) for name, value in values.items()}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PhasedLoss:
        # .half() must not round the values, and devices without float64 must not refuse them:
        # only the device of the result is taken over.
        kept = {name: self._buffers.pop(name) for name in self.phase_checks}
        super()._apply(fn, recurse)
        for name, value in kept.items():
            assert value is not None
            device = fn(torch.zeros((), device=value.device)).device
            dtype = torch.float32 if device.type == "mps" else torch.float64
            self._buffers[name] = value.to(device=device, dtype=dtype)
        return self
