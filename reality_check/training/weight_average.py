"""The exponential moving average of a network's weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from reality_check.utils import checkpoints


class WeightAverage:
    """An exponential moving average (EMA) of the trained parameters of a network.

    It begins with the weights after the first step, as that of torch's ``AveragedModel``, which
    would also copy parameters that are not trained. Buffers are not averaged.

    Args:
        network: the network.
        decay: how much of the average stays at each step, from 0 to 1; without one there is no
            average, and the network keeps its weights everywhere.
    """

    def __init__(self, network: nn.Module, decay: float | None) -> None:
        self._network, self._decay = network, decay
        self._averages: dict[nn.Parameter, Tensor] = {}

    def update(self) -> None:
        """Take the current weights into the average."""
        if self._decay is None:
            return
        weights = {p: p.detach() for p in self._network.parameters() if p.requires_grad}
        if self._averages:
            average = get_ema_multi_avg_fn(self._decay)
            average([*self._averages.values()], [*weights.values()], 0)  # 0: it uses no number
        else:
            self._averages = checkpoints.clone(weights)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Give the network the averaged weights within the context."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for parameter, average in self._averages.items():
            self._averages[parameter], parameter.data = parameter.data, average

    def state_dict(self) -> dict[str, Tensor]:
        """Return the averages by the names of their parameters, of which one may have several."""
        named = self._network.named_parameters(remove_duplicate=False)
        return {name: self._averages[p] for name, p in named if p in self._averages}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""
        named = self._network.named_parameters()
        self._averages = {p: state[n].to(p.device, copy=True) for n, p in named if n in state}
