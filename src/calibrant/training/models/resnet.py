"""Residual networks for small images: the 6n+2 family, bottleneck and wide ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F  # noqa: N812 (its name everywhere)
from torch import Tensor, nn

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.training import checks
from calibrant.training.models.initialisation import initialise

SHORTCUTS = ("pad", "projection")


class ResNet(nn.Module):
    r"""A residual network with a 3x3 stem; every stage but the first halves the image.

    Each block adds a learnt residual to its input,

    .. math:: x \mapsto \mathrm{relu}(x + f(x)),

    with f two 3x3 convolutions, or a 3x3 one between two 1x1 ones (``bottleneck``), each followed
    by batch normalisation. ``classifier`` takes the mean over the image.

    Args:
        n_classes: Number of classes.
        depths: Blocks in each stage.
        widths: Channels of each stage. In a bottleneck, those of the 3x3 convolution; its output
            has four times as many.
        stem: Channels of the first convolution.
        bottleneck: Whether blocks are bottlenecks.
        in_channels: Channels of the images.
        shortcut: Shortcut where the shape changes: a 1x1 convolution (``"projection"``), or every
            second pixel with zeros for the new channels (``"pad"``, no parameters).
        pooled: Side of the grid that pooling leaves of the image; 1 is the mean over all of it.
        initialisation: ``"he"`` or ``"torch"``.

    References:
        He et al. (2016), Deep residual learning for image recognition.

    Examples:
        >>> import torch
        >>> from calibrant.training.models import ResNet
        >>> network = ResNet(10, depths=(1, 1), widths=(16, 32), stem=16)
        >>> network(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
        >>> network.classifier
        Linear(in_features=32, out_features=10, bias=True)
    """

    def __init__(
        self,
        n_classes: int,
        *,
        depths: Sequence[int],
        widths: Sequence[int],
        stem: int,
        bottleneck: bool = False,
        in_channels: int = 3,
        shortcut: str = "projection",
        pooled: int = 1,
        initialisation: str = "he",
    ) -> None:
        super().__init__()
        _inputs.choice(shortcut, "shortcut", SHORTCUTS)
        self.in_channels = checks.layer_size(in_channels, "in_channels")
        self.pooled = checks.layer_size(pooled, "pooled")
        self.stem = _convolution(in_channels, stem)
        self.stem_norm = nn.BatchNorm2d(stem)
        block = _Bottleneck if bottleneck else _Basic
        channels = stem
        stages: list[nn.Module] = []
        for index, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            blocks: list[nn.Module] = []
            for position in range(depth):
                stride = 2 if index > 0 and position == 0 else 1
                blocks.append(block(channels, width, stride, shortcut))
                channels = width * block.EXPANSION
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(channels * self.pooled**2, checks.n_classes(n_classes))
        initialise(self, initialisation)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (n, classes) of images (n, channels, height, width)."""
        checks.check_images(images, self.in_channels)
        features = F.relu(self.stem_norm(self.stem(images)), inplace=True)
        features = F.adaptive_avg_pool2d(self.stages(features), self.pooled)
        logits: Tensor = self.classifier(features.flatten(1))
        return logits


class _Basic(nn.Module):
    """Two 3x3 convolutions."""

    EXPANSION = 1

    def __init__(self, channels: int, width: int, stride: int, shortcut: str) -> None:
        super().__init__()
        self.conv1 = _convolution(channels, width, stride=stride)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = _convolution(width, width)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = _shortcut(channels, width, stride, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)), inplace=True)
        out = self.norm2(self.conv2(out))
        return F.relu(out.add_(self.shortcut(x)), inplace=True)


class _Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones, the second with four times the channels."""

    EXPANSION = 4

    def __init__(self, channels: int, width: int, stride: int, shortcut: str) -> None:
        super().__init__()
        wide = width * self.EXPANSION
        self.conv1 = _convolution(channels, width, side=1)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = _convolution(width, width, stride=stride)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = _convolution(width, wide, side=1)
        self.norm3 = nn.BatchNorm2d(wide)
        self.shortcut = _shortcut(channels, wide, stride, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)), inplace=True)
        out = F.relu(self.norm2(self.conv2(out)), inplace=True)
        out = self.norm3(self.conv3(out))
        return F.relu(out.add_(self.shortcut(x)), inplace=True)


class _PadChannels(nn.Module):
    """Every ``stride``-th pixel, with zero channels added on both sides."""

    def __init__(self, missing: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.before, self.after = missing // 2, missing - missing // 2

    def forward(self, x: Tensor) -> Tensor:
        # Unlike that of x[:, :, ::2, ::2], its gradient keeps the memory format of x.
        kept = F.avg_pool2d(x, 1, self.stride)
        return F.pad(kept, (0, 0, 0, 0, self.before, self.after))


def _shortcut(channels: int, wide: int, stride: int, kind: str) -> nn.Module:
    if stride == 1 and channels == wide:
        return nn.Identity()
    if kind == "pad":
        return _PadChannels(wide - channels, stride)
    return nn.Sequential(_convolution(channels, wide, side=1, stride=stride), nn.BatchNorm2d(wide))


def _convolution(channels: int, out: int, *, side: int = 3, stride: int = 1) -> nn.Conv2d:
    """A padded convolution without bias: batch normalisation follows it."""
    return nn.Conv2d(channels, out, side, stride=stride, padding=side // 2, bias=False)


def cifar_resnet(
    n_classes: int, *, depth: int, in_channels: int = 3, shortcut: str = "pad"
) -> ResNet:
    """ResNet with 6n+2 layers: three stages of n basic blocks, 16, 32 and 64 channels.

    Args:
        n_classes: Number of classes.
        depth: 8, 20, 32, 44, 56, 110 or another 6n+2.
        in_channels: Channels of the images.
        shortcut: ``"pad"`` as in the reference, or ``"projection"``.

    References:
        He et al. (2016), Sec. 4.2; networks 8, 20, 44 and 110 in Charoenphakdee et al. (2021).

    Examples:
        >>> from calibrant.training.models import cifar_resnet
        >>> sum(p.numel() for p in cifar_resnet(10, depth=20).parameters())
        269722
    """
    n = _blocks_per_stage(depth)
    return ResNet(
        n_classes,
        depths=(n, n, n),
        widths=(16, 32, 64),
        stem=16,
        in_channels=in_channels,
        shortcut=shortcut,
    )


def bottleneck_resnet(
    n_classes: int,
    *,
    depths: Sequence[int] = (3, 4, 6, 3),
    in_channels: int = 3,
    pooled: int = 1,
    initialisation: str = "torch",
) -> ResNet:
    """ResNet-50 for 32x32 images, and others of four stages of bottlenecks, 64 to 512 wide.

    The stem is a 3x3 convolution without pooling, so the last stage has 4x4 pixels. For the 64x64
    pixels of Tiny ImageNet the reference pools to a 2x2 grid (``pooled=2``).

    Args:
        n_classes: Number of classes.
        depths: Blocks in each stage: (3, 4, 6, 3) has 50 layers; (3, 4, 26, 3) has 110.
        in_channels: Channels of the images.
        pooled: Side of the grid that pooling leaves of the image.
        initialisation: ``"torch"`` or ``"he"``. The reference uses torch's for 32x32 pixels and
            He's for 64x64.

    References:
        He et al. (2016); ResNet-50 and ResNet-110 of Mukhoti et al. (2020), and of Komisarenko and
        Kull (2024).

    Examples:
        >>> from calibrant.training.models import bottleneck_resnet
        >>> sum(p.numel() for p in bottleneck_resnet(10).parameters())
        23520842
    """
    return ResNet(
        n_classes,
        depths=depths,
        widths=(64, 128, 256, 512),
        stem=64,
        bottleneck=True,
        in_channels=in_channels,
        pooled=pooled,
        initialisation=initialisation,
    )


def wide_resnet(
    n_classes: int, *, depth: int = 26, width: int = 10, in_channels: int = 3
) -> ResNet:
    """Wide ResNet: three stages of basic blocks, 16, 32 and 64 channels times ``width``.

    As in the code of Mukhoti et al. (2020): ReLU after the sum, no dropout, projections where the
    shape changes. Zagoruyko and Komodakis put normalisation and ReLU before each convolution.

    Args:
        n_classes: Number of classes.
        depth: 26 has four blocks in each stage; any 6n+2.
        width: Factor of the channels.
        in_channels: Channels of the images.

    References:
        Zagoruyko and Komodakis (2016), Wide residual networks.

    Examples:
        >>> from calibrant.training.models import wide_resnet
        >>> sum(p.numel() for p in wide_resnet(10, depth=8, width=2).parameters())
        304154
    """
    n = _blocks_per_stage(depth)
    width = checks.layer_size(width, "width")
    return ResNet(
        n_classes,
        depths=(n, n, n),
        widths=(16 * width, 32 * width, 64 * width),
        stem=16,
        in_channels=in_channels,
    )


def _blocks_per_stage(depth: Any) -> int:
    """n of a depth 6n+2."""
    number = _inputs.whole_number(depth, "depth", allowed=range(8, 10_000))
    if number % 6 != 2:
        below = number - (number - 2) % 6
        raise CalibrantError(
            f"depth must be 6n+2, for three stages of n blocks of two layers; found {number}. "
            f"Take {below} or {below + 6}"
        )
    return number // 6
