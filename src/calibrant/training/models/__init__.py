"""The papers' networks, in the sizes for their data sets.

    network = build("resnet50", 10)                # or your own: "package.module:function"
    logits = network(images)

Every network returns logits of shape (rows, classes), and its last linear layer is ``classifier``.
Initial weights come from torch's global generator, so ``torch.manual_seed`` decides them.
"""

from calibrant.training.models.adapting import Adapted
from calibrant.training.models.densenet import DenseNet
from calibrant.training.models.mlp import MLP
from calibrant.training.models.registry import MODELS, build
from calibrant.training.models.resnet import ResNet, bottleneck_resnet, cifar_resnet, wide_resnet
from calibrant.training.models.text_cnn import TextCNN
from calibrant.training.models.tree_lstm import TreeLSTM, Trees

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
