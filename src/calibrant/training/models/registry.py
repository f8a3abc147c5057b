"""The networks by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from torch import nn

from calibrant import _inputs
from calibrant._registry import Registry
from calibrant.errors import CalibrantError
from calibrant.training import checks
from calibrant.training.models.adapting import Adapted
from calibrant.training.models.densenet import DenseNet
from calibrant.training.models.mlp import MLP
from calibrant.training.models.resnet import bottleneck_resnet, cifar_resnet, wide_resnet
from calibrant.training.models.text_cnn import TextCNN
from calibrant.training.models.tree_lstm import TreeLSTM

MODELS: Registry[Callable[..., nn.Module]] = Registry(
    "model",
    {
        "resnet8": partial(cifar_resnet, depth=8),
        "resnet20": partial(cifar_resnet, depth=20),
        "resnet32": partial(cifar_resnet, depth=32),
        "resnet44": partial(cifar_resnet, depth=44),
        "resnet56": partial(cifar_resnet, depth=56),
        "resnet110": partial(cifar_resnet, depth=110),
        "resnet50": partial(bottleneck_resnet, depths=(3, 4, 6, 3)),
        "resnet50-tiny": partial(
            bottleneck_resnet, depths=(3, 4, 6, 3), pooled=2, initialisation="he"
        ),
        "resnet110-bottleneck": partial(bottleneck_resnet, depths=(3, 4, 26, 3)),
        "wide-resnet-26-10": partial(wide_resnet, depth=26, width=10),
        "densenet121": partial(DenseNet, depths=(6, 12, 24, 16), growth=32),
        "text-cnn": TextCNN,
        "tree-lstm": TreeLSTM,
        "mlp": MLP,
    },
)
"""Name -> factory of the network, ``factory(n_classes, **options)``."""


def build(name: str, n_classes: int, **options: Any) -> nn.Module:
    """Build a network with new weights, drawn from torch's global generator.

    Args:
        name: One of ``MODELS``, or ``"package.module:function"`` for your own, where
            ``function(n_classes, **options)`` returns any ``nn.Module``.
        n_classes: Number of classes.
        options: Other options of this network, such as ``in_channels``.

    Returns:
        nn.Module: returns logits; its last linear layer is ``classifier``.

    Examples:
        >>> import torch
        >>> from calibrant.training.models import build
        >>> network = build("resnet8", 10, in_channels=1)
        >>> network(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
        >>> build("calibrant.training.models:cifar_resnet", 10, depth=14).classifier
        Linear(in_features=64, out_features=10, bias=True)
        >>> build("resnet-20", 10)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        calibrant.errors.UnknownNameError: model must be one of ... Did you mean 'resnet20'?
    """
    if checks.is_own_code(name):
        return _build_own(name, n_classes, options)
    factory = MODELS[name]
    fixed = factory.keywords if isinstance(factory, partial) else {}
    parameters = inspect.signature(factory).parameters.values()
    known = {p.name: p.default for p in parameters if p.name not in ("n_classes", *fixed)}
    for option in options:
        _inputs.parameter(option, f"the network {name}", list(known), kind="option")
    required = [option for option, default in known.items() if default is inspect.Parameter.empty]
    missing = [option for option in required if option not in options]
    if missing:
        raise CalibrantError(
            f"the network {name} needs {', '.join(missing)}; found "
            f"{', '.join(options) or 'no options'}. Pass {missing[0]}=..."
        )
    return factory(n_classes, **options)


def _build_own(name: str, n_classes: int, options: Mapping[str, Any]) -> nn.Module:
    """Build a network with the function ``package.module:function`` of another package."""
    module, function = name.split(":", 1)
    if not _inputs.is_found(module):
        raise CalibrantError(
            f"model {name!r} needs the module {module!r}; found none of that name. Write it as "
            "package.module:function, and run where Python finds the package"
        )
    factory = getattr(import_module(module), function, None)
    if not callable(factory):
        raise CalibrantError(
            f"model {name!r} must name a function that makes a network; found "
            f"{'nothing' if factory is None else _inputs.described(factory)} there. Write it as "
            "package.module:function"
        )
    n_classes = checks.n_classes(n_classes)
    with _inputs.refusing(f"the network {name} cannot be built", "Correct it, or its options"):
        network = factory(n_classes, **options)
    return network if isinstance(network, Adapted) else Adapted(network, n_classes)
