"""DenseNet for small images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 (its name everywhere)
from torch import Tensor, nn

from calibrant.training import checks
from calibrant.training.models.initialisation import initialise


class DenseNet(nn.Module):
    """DenseNet-BC with a 3x3 stem: every layer sees the output of all layers before it.

    A layer is a 1x1 convolution to 4 x ``growth`` channels and a 3x3 one to ``growth``, each after
    normalisation and ReLU; its output is concatenated to its input. Between two stages a 1x1
    convolution halves the channels and 2x2 average pooling the image. With the default,
    (3 + 2 x sum of depths) + the classifier are 121 layers.

    Args:
        n_classes: Number of classes.
        depths: Layers in each stage; the default is DenseNet-121.
        growth: Channels that each layer adds.
        in_channels: Channels of the images.
        initialisation: ``"torch"`` as in the code of Mukhoti et al. (2020), or ``"he"``.

    References:
        Huang et al. (2017), Densely connected convolutional networks.

    Examples:
        >>> import torch
        >>> from calibrant.training.models import DenseNet
        >>> network = DenseNet(10, depths=(2, 2), growth=8)
        >>> network(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        n_classes: int,
        *,
        depths: Sequence[int] = (6, 12, 24, 16),
        growth: int = 32,
        in_channels: int = 3,
        initialisation: str = "torch",
    ) -> None:
        super().__init__()
        self.in_channels = checks.layer_size(in_channels, "in_channels")
        growth = checks.layer_size(growth, "growth")
        # Each pooling between two stages needs two pixels.
        self.smallest = 2 ** (len(depths) - 1)
        channels = 2 * growth
        self.stem = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        stages: list[nn.Module] = []
        for index, depth in enumerate(depths):
            if index > 0:
                stages.append(_Transition(channels))
                channels //= 2
            for _ in range(depth):
                stages.append(_DenseLayer(channels, growth))
                channels += growth
        self.stages = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(channels)
        self.classifier = nn.Linear(channels, checks.n_classes(n_classes))
        initialise(self, initialisation)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (n, classes) of images (n, channels, height, width)."""
        checks.check_images(images, self.in_channels, smallest=self.smallest)
        features = self.norm(self.stages(self.stem(images)))
        features = F.adaptive_avg_pool2d(F.relu(features, inplace=True), 1)
        logits: Tensor = self.classifier(features.flatten(1))
        return logits


class _DenseLayer(nn.Module):
    """The input and ``growth`` new channels."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        new = self.conv1(F.relu(self.norm1(x), inplace=True))
        new = self.conv2(F.relu(self.norm2(new), inplace=True))
        return torch.cat((x, new), 1)


class _Transition(nn.Module):
    """Halves the number of channels and the side of the image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, channels // 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(F.relu(self.norm(x), inplace=True)), 2)
