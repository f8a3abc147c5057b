"""Targets, weights and gammas of losses, and what trainers hand over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from array_api_compat import array_namespace

from calibrant._checks.arrays import refuse, within_type
from calibrant._checks.values import described, finite_number, holds, whole_number
from calibrant._types import Array
from calibrant.errors import CalibrantError


def ignored_index(value: Any) -> int:
    """A whole number that marks targets of a loss which do not count."""
    return whole_number(value, "ignore_index", allowed=range(-(2**62), 2**62))


def class_weights(values: Any) -> Array:
    """One weight for each class as a torch tensor of floats, finite and not negative; or None."""
    if values is None:
        return None
    if not (hasattr(values, "is_floating_point") and values.is_floating_point()):
        raise CalibrantError(
            f"weight must be a tensor of floats, one for each class; found {described(values)}. "
            "Pass torch.tensor([...])"
        )
    if values.ndim != 1:
        raise CalibrantError(
            f"weight must have one entry for each class; found shape {tuple(values.shape)}. "
            "Pass a tensor with one axis"
        )
    refuse(
        ~((values >= 0) & (values < math.inf)),
        "weight must be finite and not negative; found {found} in {where}. Use 0 to leave a class "
        "out",
        found=values,
    )
    return values


def label_smoothing(value: Any) -> float:
    """A share of a target's mass."""
    number = finite_number(value, "label_smoothing")
    if not 0.0 <= number <= 1.0:
        raise CalibrantError(
            f"label_smoothing must lie between 0 and 1; found {number:g}. The papers use 0.1"
        )
    return number


def soft_targets(logits: Array, target: Array, ignored: int) -> None:
    """Class probabilities for every logit, none of which could be ignored by its index."""
    if tuple(logits.shape) != tuple(target.shape):
        raise CalibrantError(
            f"targets that are probabilities must have the shape of the logits, "
            f"{tuple(logits.shape)}; found {tuple(target.shape)}. "
            "Pass class indices as integers: target.long()"
        )
    if ignored >= 0:
        raise CalibrantError(
            f"ignore_index is for targets that are class indices; found {ignored} and targets "
            "that are probabilities. Leave ignore_index out, and give ignored rows no mass"
        )


def same_shape_targets(logits: Array, target: Array) -> None:
    """One target for each binary logit."""
    if tuple(logits.shape) != tuple(target.shape):
        raise CalibrantError(
            f"targets must have the shape of the logits, {tuple(logits.shape)}; found "
            f"{tuple(target.shape)}. Pass one target, 0 to 1, for each logit"
        )


def signed_gamma(value: Any, *, like: Array) -> float:
    """A finite gamma of a policy; below 0 it is that of the inverse focal loss."""
    number = finite_number(value, "gamma")
    within_type(number, "gamma", like, smallest=0.0)
    return number


def one_weight_a_class(weight: Array, n_classes: int) -> None:
    """Class weights that fit the logits."""
    if len(weight) != n_classes:
        raise CalibrantError(
            f"weight must have one entry for each class; found {len(weight)} for logits of "
            f"{n_classes} classes. Pass a tensor of {n_classes}"
        )


def gammas_of_policy(gammas: Any, p: Array, owner: str, *, finite: bool) -> Array:
    """What a policy of one's own returns for p: finite gammas, one for each or one for all."""
    xp = array_namespace(p)
    if isinstance(gammas, (int, float)):
        gammas = xp.full_like(p, gammas)
    shape = getattr(gammas, "shape", None)
    if shape is None or shape not in ((), p.shape):
        found = type(gammas).__name__ if shape is None else f"shape {tuple(shape)}"
        raise CalibrantError(
            f"a policy must return a tensor with one gamma for each p, or one number for all; "
            f"found {found} from {owner} for p of shape {tuple(p.shape)}"
        )
    if finite and not bool(xp.all(xp.isfinite(gammas))):
        raise CalibrantError(
            f"a policy must return finite gammas; found NaN or infinity from {owner}. "
            "Look at its forward(p), where p may be 0 or 1"
        )
    return xp.astype(gammas, p.dtype)


def rising_thresholds(values: Sequence[Any], *, n_gammas: int) -> tuple[float, ...]:
    """Probabilities in rising order, one fewer than gammas."""
    thresholds = tuple(finite_number(value, "thresholds") for value in values)
    rising = all(a < b for a, b in pairwise(thresholds))
    if not (rising and all(0.0 < t < 1.0 for t in thresholds)):
        raise CalibrantError(
            f"thresholds must rise and lie strictly between 0 and 1; found {thresholds}. "
            "Sort them, and put each in once"
        )
    _one_gamma_more("thresholds", len(thresholds), n_gammas)
    return thresholds


def boundaries(
    fractions: Sequence[Any] | None, epochs: Sequence[Any] | None, *, n_gammas: int
) -> tuple[float, ...]:
    """Where the gammas of a schedule change, in parts of the run or in epochs."""
    name, values = one_of_boundaries(fractions, epochs)
    found = tuple(finite_number(value, name) for value in values)
    rising = all(a < b for a, b in pairwise(found))
    highest = 1.0 if name == "fractions" else math.inf
    if not (rising and all(0.0 < value < highest for value in found)):
        limits = "between 0 and 1" if name == "fractions" else "above 0"
        raise CalibrantError(f"{name} must rise and lie {limits}; found {found}. Sort them")
    _one_gamma_more(name, len(found), n_gammas)
    return found


def one_of_boundaries(
    fractions: Sequence[Any] | None, epochs: Sequence[Any] | None
) -> tuple[str, Sequence[Any]]:
    """Either of the two ways to say when a gamma changes."""
    if fractions is not None and epochs is not None:
        raise CalibrantError("a schedule takes fractions or epochs; found both. Leave one out")
    return ("epochs", epochs) if epochs is not None else ("fractions", fractions or ())


def _one_gamma_more(name: str, n_steps: int, n_gammas: int) -> None:
    if n_gammas != n_steps + 1:
        raise CalibrantError(
            f"there must be one gamma more than {name}; found {n_gammas} gammas and {n_steps} "
            f"{name}. The last gamma is for what is above the last of them"
        )


def length_of_run(epoch: int, n_epochs: Any) -> int:
    """How many epochs a run has, for a schedule in parts of it."""
    if n_epochs is None:
        raise CalibrantError(
            "a schedule in fractions of the run needs n_epochs; found none. Call "
            "start_epoch(epoch, n_epochs) (in Lightning: set max_epochs), or give the schedule in "
            "epochs="
        )
    length = whole_number(n_epochs, "n_epochs", allowed=range(1, 2**53))
    if epoch >= length:
        raise CalibrantError(
            f"epoch must be below n_epochs; found {epoch} of {length}. Count epochs from 0"
        )
    return length


def limits_of_gamma(
    lowest: Any, highest: Any, start: Any, switch: float
) -> tuple[float, float, float]:
    """Limits on both sides of where AdaFocal's gamma changes its sign, and a start in between."""
    low, high = finite_number(lowest, "lowest"), finite_number(highest, "highest")
    begin = finite_number(start, "start")
    if not (low <= -switch and switch <= high):
        raise CalibrantError(
            f"lowest and highest must enclose -switch and switch; found {low:g} and {high:g} "
            f"around {switch:g}. AdaFocal's are -2, 20 and 0.2"
        )
    if not (low <= begin <= high and abs(begin) >= switch):
        raise CalibrantError(
            f"start must lie between {low:g} and {high:g} and no closer to 0 than {switch:g}; "
            f"found {begin:g}. AdaFocal's is 1"
        )
    return low, high, begin


def fixed_gamma(value: Any) -> float:
    """A gamma that is a number, for a map that belongs to it."""
    if not isinstance(value, float):
        raise CalibrantError(
            "the focal map needs a gamma that is a number; found a policy, whose optimum has no "
            "such map. Fit a calibrator on validation data"
        )
    return value


def validation_output(outputs: Any) -> tuple[Any, Any]:
    """The logits and labels that a Lightning ``validation_step`` has returned."""
    missing = [name for name in ("logits", "labels") if not holds(outputs, name)]
    if missing:
        found = f"the keys {', '.join(map(str, outputs))}" if isinstance(outputs, Mapping) else None
        raise CalibrantError(
            "CalibrationCallback needs the logits and labels of the validation step; found "
            f"{found or described(outputs)}. Return {{'logits': logits, 'labels': labels}} from "
            "validation_step"
        )
    return outputs["logits"], outputs["labels"]


def one_ignored_index(found: set[int]) -> int:
    """The label that all losses of a module leave out; torch's own where there are none."""
    if len(found) > 1:
        raise CalibrantError(
            "the losses of a module must have the same ignore_index; found "
            f"{' and '.join(map(str, sorted(found)))}. Pass ignore_label= to CalibrationCallback"
        )
    return next(iter(found), -100)


def trainer_loss(loss: Any, *, binary: bool) -> None:
    """A loss whose targets are those that the Hugging Face Trainer counts."""
    if binary:
        raise CalibrantError(
            f"TrainerLoss is for losses of class indices; found {type(loss).__name__}. Pass a "
            "function of your own as compute_loss_func, which calls it"
        )
    if loss.ignore_index != -100:
        raise CalibrantError(
            "ignore_index must be -100, since the Trainer counts all other labels; found "
            f"{loss.ignore_index}. Mark labels that do not count with -100"
        )


def no_other_smoothing(factor: float) -> None:
    """No smoothing that the Hugging Face Trainer would leave out."""
    if factor != 0.0:
        raise CalibrantError(
            "the Trainer smooths no labels where it is given a loss; found "
            f"label_smoothing_factor={factor:g}. Pass label_smoothing={factor:g} to the loss"
        )


def trainer_labels(labels: Any) -> Any:
    """Class indices that the Hugging Face Trainer has found among its inputs."""
    if labels is None:
        raise CalibrantError(
            "the loss needs labels; found none among the inputs. Call the column of the data set "
            "'labels'"
        )
    if labels.is_floating_point():
        raise CalibrantError(
            f"labels must be class indices; found {labels.dtype} of shape {tuple(labels.shape)}, "
            "each number of which the Trainer would count as a target. Pass integers, or a "
            "function of your own as compute_loss_func"
        )
    return labels
