"""The papers' networks, in the sizes of their data sets.

    network = build("resnet50", 10)                # or one of yours: "package.module:function"
    logits = network(images)

Every network gives logits of shape (rows, classes), and its last linear layer is ``classifier``.
Weights are drawn with torch's own generator: ``torch.manual_seed`` decides them.

This package needs PyTorch: ``pip install 'calibrant[torch]'``.
"""

from calibrant import _checks

_checks.installed("torch", extra="torch", purpose="calibrant.models")

from calibrant.models.adapting import Adapted
from calibrant.models.densenet import DenseNet
from calibrant.models.mlp import MLP
from calibrant.models.registry import MODELS, build
from calibrant.models.resnet import ResNet, bottleneck_resnet, cifar_resnet, wide_resnet
from calibrant.models.text_cnn import TextCNN
from calibrant.models.tree_lstm import TreeLSTM, Trees

__all__ = [
    "MLP",
    "MODELS",
    "Adapted",
    "DenseNet",
    "ResNet",
    "TextCNN",
    "TreeLSTM",
    "Trees",
    "bottleneck_resnet",
    "build",
    "cifar_resnet",
    "wide_resnet",
]
