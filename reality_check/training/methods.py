"""Builds the loss and the miner of a method from its sampled hyper-parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from reality_check.config.classes import build, constructor_arguments, find_class
from reality_check.config.method import BeforeTraining, Method, SecondPhase, ValueSchedule
from reality_check.config.model import Model
from reality_check.config.protocol import Protocol
from reality_check.config.training import Training
from reality_check.config.values import (
    Choices,
    Range,
    Searched,
    ends_of,
    fill_in,
    find_searched,
    is_number,
)
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

#: Prefix of the learning rates of parts of the loss.
LOSS_PART = "loss."
#: The number of training classes of a loss that is only inspected, without the data set.
_ANY_CLASSES = 100
#: Images per class of a toy batch if batches are not class-balanced.
SAMPLES_PER_CLASS = 2


@dataclass(frozen=True)
class FilledSecondPhase:
    """The second phase of a method, with every searched value filled in.

    Attributes:
        arguments: the new values of arguments of the loss, by name.
        factors: the factors by which values of the loss are multiplied, by name.
        lr_factor: the factor of the network's learning rates.
        loss_lr_factor: the factor of the loss's learning rate.
    """

    arguments: dict[str, float]
    factors: dict[str, float]
    lr_factor: float
    loss_lr_factor: float


@dataclass(frozen=True)
class FilledMethod:
    """A method with every searched value filled in, as fold runs train with it.

    Attributes:
        learning_rates: by part: ``trunk``, ``embedder``, ``loss`` and ``loss.NAME`` for the parts
            of the loss that have their own.
        params: the sampled values by dotted name.
    """

    name: str
    loss: str
    arguments: dict[str, Any]
    miner: dict[str, Any] | None
    samples_per_class: int | None
    learning_rates: dict[str, float]
    loss_weight_decay: float
    normalize_embeddings: bool
    second_phase: FilledSecondPhase | None = None
    schedules: dict[str, ValueSchedule] = field(default_factory=dict)
    before_training: BeforeTraining = field(default_factory=BeforeTraining)
    params: dict[str, Any] = field(default_factory=dict)


def search_space(
    method: Method, protocol: Protocol, model: Model | None = None
) -> dict[str, Searched]:
    """Return the searched parameters of a method by dotted name, in a fixed order.

    Args:
        model: the model that the method trains, of which values may be searched too.
    """
    # The dotted names have no prefix ("").
    searched = dict(find_searched(_searchable_options(method, protocol, model), ""))
    return dict(sorted({**searched, **(model.searched() if model else {})}.items()))


def check_start(method: Method, simpler: Method, protocol: Protocol) -> None:
    """Make sure that the winner of a method's search can be a trial of another method.

    Args:
        method: the method whose search starts from that winner.
        simpler: the method that this winner belongs to.
        protocol: the protocol of the experiment.

    Raises:
        UsageError: ``method`` does not search a parameter of ``simpler``, or not as widely; or a
            parameter that only ``method`` searches has no neutral value, at which both methods are
            the same, in its range.
    """
    assert method.starts_from is not None
    space, simpler_space = search_space(method, protocol), search_space(simpler, protocol)
    neutral = method.starts_from.neutral
    label = f"method {method.name!r} starts from {simpler.name!r}"
    for name, value in simpler_space.items():
        if name not in space:
            raise UsageError(
                f"{label}, which searches {name}, but {method.name!r} does not; search it in both."
            )
        if not all(_is_in_range(space[name], end) for end in ends_of(value)):
            raise UsageError(
                f"{label}, whose {name} may have values that are not in the range of "
                f"{method.name!r}; give both the same range."
            )
    extra = [name for name in space if name not in simpler_space]
    unknown = [name for name in neutral if name not in extra]
    if unknown:
        raise UsageError(
            f"{label}: neutral has {unknown[0]!r}, which is not one of the parameters that only "
            f"{method.name!r} searches ({', '.join(extra) or 'there are none'})."
        )
    for name in extra:
        if name not in neutral:
            raise UsageError(
                f"{label}: neutral lacks {name}, which {simpler.name!r} does not search; write the "
                f"value at which {method.name!r} is {simpler.name!r}."
            )
        if not _is_in_range(space[name], neutral[name]):
            raise UsageError(f"{label}: the neutral {name}={neutral[name]} is not in its range.")


def check_warm_start(method: Method, space: Mapping[str, Searched]) -> None:
    """Make sure that ``warm_start`` has a value in range for every searched parameter."""
    assert method.warm_start is not None
    values, label = method.warm_start.values, f"method {method.name!r}: warm_start"
    missing = [name for name in space if name not in values]
    if missing:
        raise UsageError(f"{label} lacks {missing[0]}, which is searched; add its value.")
    for name, value in values.items():
        if name not in space:
            raise UsageError(
                f"{label} has {name}, which is not searched; what is: {', '.join(space)}."
                f"{nearest(name, space)}"
            )
        if not _is_in_range(space[name], value):
            raise UsageError(f"{label} has {name}={value}, which is not in its range.")


def _is_in_range(searched: Searched, number: Any) -> bool:
    """Return whether ``number`` is in the range of a searched parameter."""
    if isinstance(searched, Choices):
        return number in searched.choices
    return is_number(number) and searched.low <= number <= searched.high


def fill_method(
    method: Method, protocol: Protocol, params: Mapping[str, Any], model: Model | None = None
) -> FilledMethod:
    """Return a method with sampled values of its :func:`search_space` filled in."""
    # The names in ``params`` have no prefix ("").
    values = fill_in(_searchable_options(method, protocol, model), "", params)
    second = values["phase2"]
    # By default, all learning rates have one factor.
    if second and second["loss_lr_factor"] is None:
        second["loss_lr_factor"] = second["lr_factor"]
    decay = method.loss_weight_decay
    optimizers = _training(method, protocol).optimizers
    return FilledMethod(
        name=method.name,
        loss=method.loss,
        arguments=values["arguments"],
        miner=values["miner"],
        samples_per_class=values["samples_per_class"],
        learning_rates=values["learning_rates"],
        loss_weight_decay=optimizers.loss.weight_decay if decay is None else decay,
        normalize_embeddings=method.normalize_embeddings,
        second_phase=FilledSecondPhase(**second) if second else None,
        schedules={
            name: ValueSchedule.model_validate(schedule)
            for name, schedule in values["schedules"].items()
        },
        before_training=method.before_training,
        params=dict(params),
    )


def middles(space: Mapping[str, Searched]) -> dict[str, Any]:
    """Return the middle of every searched parameter."""
    return {name: value.middle() for name, value in space.items()}


def middle_params(method: Method, protocol: Protocol) -> dict[str, Any]:
    """Return the middle of every searched parameter of a method, for checks."""
    return middles(search_space(method, protocol))


def _searchable_options(method: Method, protocol: Protocol, model: Model | None) -> dict[str, Any]:
    """Return the options of a method that can be searched, with the protocol's learning rates."""
    rates, searched_by_all = {}, set()  # by part; parts whose rate the protocol searches
    optimizers = _training(method, protocol).optimizers
    for part in ("trunk", "embedder", "loss"):
        method_rate = getattr(method.learning_rates, part)
        rates[part] = getattr(optimizers, part).lr if method_rate is None else method_rate
        if method_rate is None and not isinstance(rates[part], float):  # but a range or choices
            searched_by_all.add(part)
    # A learning rate without an effect is not searched, even if all methods search theirs.
    if "loss" in searched_by_all and not has_parameters(method, protocol):
        rates["loss"] = 0.0
    if "trunk" in searched_by_all and model is not None and model.trunk == "identity":
        rates["trunk"] = 0.0
    parts = method.learning_rates.loss_parts
    rates |= {f"{LOSS_PART}{name}": rate for name, rate in parts.items()}
    return {
        "arguments": method.arguments,
        "miner": method.miner,
        "learning_rates": rates,
        "schedules": {name: dict(schedule) for name, schedule in method.schedules.items()},
        "phase2": _second_phase(method, protocol),
        "training": {"batch_size": _training(method, protocol).batch_size},
        "samples_per_class": method.samples_per_class,
    }


def _training(method: Method, protocol: Protocol) -> Training:
    return method.training or protocol.training


def _second_phase(method: Method, protocol: Protocol) -> dict[str, Any] | None:
    """Return the options of a method's second phase; None if it has none."""
    if method.phase2 is not None:
        return dict(method.phase2)
    if _training(method, protocol).phases == "method":
        return None
    # Appendix D: every method has a second phase, whose learning rates are searched.
    return dict(SecondPhase(lr_factor=Range(low=0.01, high=1.0, log=True)))


def has_parameters(method: Method, protocol: Protocol) -> bool:
    """Return whether the loss has parameters, so that their learning rate matters."""
    params = middles(dict(find_searched(method.arguments, "arguments")))
    filled = FilledMethod(
        name=method.name,
        loss=method.loss,
        arguments=fill_in(method.arguments, "arguments", params),
        miner=None,
        samples_per_class=None,
        learning_rates={},
        loss_weight_decay=0.0,
        normalize_embeddings=True,
    )
    size = _training(method, protocol).embedding_size
    return any(p.requires_grad for p in build_loss(filled, _ANY_CLASSES, size).parameters())


def build_loss(filled: FilledMethod, num_classes: int, embedding_size: int) -> torch.nn.Module:
    """Construct the loss of a method for a number of training classes.

    Raises:
        UsageError: the class cannot be found, refuses its arguments or is not a module; or it does
            not keep an argument unchanged that the second phase replaces.
    """
    label = f"method {filled.name!r}: loss {filled.loss}"
    sizes = {"num_classes": num_classes, "embedding_size": embedding_size}
    cls = find_class(filled.loss, "loss")
    if not inspect.isclass(cls):
        label += " (a function that makes the loss, which is called with embeddings and labels)"
    loss = build(cls, filled.arguments, label, sizes)
    if not isinstance(loss, torch.nn.Module):
        raise UsageError(
            f"{label} must be a torch.nn.Module, best a subclass of PML's BaseMetricLossFunction; "
            f"got {type(loss).__name__}."
        )
    second = filled.second_phase
    replaced = set(second.arguments if second else ()) & set(constructor_arguments(cls)[0])
    if second is not None and replaced and not hasattr(loss, "set_phase"):
        values = {name: second.arguments[name] for name in sorted(replaced)}
        # Try a second loss with these values, without drawing from the training's random numbers.
        with torch.random.fork_rng(devices=[]):
            changed_loss = build(
                cls, {**filled.arguments, **values}, f"{label}, second phase", sizes
            )
        _check_kept(changed_loss, values, label)
    return loss


def _check_kept(loss: torch.nn.Module, values: Mapping[str, float], label: str) -> None:
    """Make sure that a loss keeps these arguments unchanged, so that they can be set later.

    For example, PML's ArcFace is given its margin in degrees and keeps it in radians.
    """
    for name, value in values.items():
        kept = current_value(loss, name, f"{label}, second phase")
        if kept != value:
            raise UsageError(
                f"{label}, second phase: {type(loss).__name__} does not hold {name}={value:g} as "
                f"given (it makes {kept:g} of it), so it cannot be set during a training; write "
                f"factors: {{{name}: ...}}, which multiplies what it holds."
            )


def build_miner(
    filled: FilledMethod, num_classes: int, embedding_size: int
) -> torch.nn.Module | None:
    """Construct the miner of a method; return ``None`` if it has none."""
    if filled.miner is None:
        return None
    arguments = {key: value for key, value in filled.miner.items() if key != "class"}
    name = str(filled.miner["class"])
    label = f"method {filled.name!r}: miner {name}"
    sizes = {"num_classes": num_classes, "embedding_size": embedding_size}
    return build(find_class(name, "miner"), arguments, label, sizes)


def enter_second_phase(loss: torch.nn.Module, second: FilledSecondPhase) -> None:
    """Give the loss its second-phase values.

    If the loss has ``set_phase(**values)``, as all losses of ``pml_extensions``, it is called.
    Otherwise the numeric attributes of these names are replaced, as :func:`build_loss` has checked.
    """
    values = dict(second.arguments)
    for name, factor in second.factors.items():
        if not is_number(factor):
            raise UsageError(
                f"second phase: the factor of {name!r} must be a number, got {factor!r}."
            )
        values[name] = factor * current_value(loss, name)
    set_values(loss, values, "second phase")


def set_values(loss: torch.nn.Module, values: Mapping[str, float], when: str) -> None:
    """Change numbers of a loss during a training.

    Args:
        loss: a loss with ``set_phase(**values)``, or with attributes of these names.
        values: the new values by name.
        when: the occasion, for error messages.

    Raises:
        UsageError: the loss has no such value, or refuses it.
    """
    if not values:
        return
    set_phase: Any = getattr(loss, "set_phase", None)
    if set_phase is not None:
        try:
            set_phase(**values)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{when} of {type(loss).__name__}: {error}") from None
        return
    for name, value in values.items():
        current_value(loss, name, when)  # raises if there is no such number
        current = getattr(loss, name)
        if isinstance(current, torch.Tensor):
            current.data.fill_(value)
        else:
            setattr(loss, name, value)


def current_value(loss: torch.nn.Module, name: str, when: str = "second phase") -> float:
    """Return the number that a loss has in an attribute.

    Raises:
        UsageError: the loss has no such number.
    """
    value = getattr(loss, name, None)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return float(value.detach())
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{when}: {type(loss).__name__} has no numeric value {name!r} to change.")
    return float(value)


def loss_value(
    loss: nn.Module, miner: nn.Module | None, embeddings: Tensor, labels: Tensor
) -> Tensor:
    """Return the scalar loss of a batch, through the miner if there is one.

    Raises:
        UsageError: the loss is not a scalar tensor that depends on the embeddings.
    """
    value = (
        loss(embeddings, labels, miner(embeddings, labels)) if miner else loss(embeddings, labels)
    )
    name = type(loss).__name__
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise UsageError(f"{name} must return one number as a tensor, got {got}.")
    if embeddings.requires_grad and not value.requires_grad:
        raise UsageError(
            f"{name} returned a value without a gradient; compute it from the embeddings with "
            "torch operations only (no .item(), .detach() or NumPy)."
        )
    return value.squeeze()


def toy_labels(batch_size: int, samples_per_class: int, num_classes: int) -> Tensor:
    """Return labels as in a batch, whose classes are spread over all classes of the loss."""
    classes = torch.linspace(0, num_classes - 1, max(batch_size // samples_per_class, 1))
    return classes.round().long().repeat_interleave(samples_per_class)
