"""The networks: their sizes, shapes, weights to start from, and what they refuse."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from calibrant.training.models import (
    MLP,
    MODELS,
    Adapted,
    DenseNet,
    ResNet,
    TextCNN,
    bottleneck_resnet,
    build,
    cifar_resnet,
    wide_resnet,
)

SMALL = ("resnet8", "resnet20", "resnet32", "resnet44", "resnet56")
LARGE = (
    *("resnet110", "resnet50", "resnet50-tiny", "resnet110-bottleneck"),
    *("wide-resnet-26-10", "densenet121"),
)
IMAGES = SMALL + LARGE
NEEDED = {
    "text-cnn": {"n_words": 50},
    "tree-lstm": {"n_words": 50},
    "mlp": {"n_features": 48},
}


def n_parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def conv(before: int, after: int, side: int) -> int:
    """A convolution without bias, and the scale and shift of the normalisation after it."""
    return before * after * side**2 + 2 * after


def count_6n2(depth: int, *, width: int = 1, channels: int = 3, n_classes: int = 10) -> int:
    """Parameters of three stages of basic blocks, projections where ``width`` is above 1."""
    n, total, before = (depth - 2) // 6, conv(channels, 16, 3), 16
    for after in (16 * width, 32 * width, 64 * width):
        total += conv(before, after, 3) + (2 * n - 1) * conv(after, after, 3)
        if width > 1:
            total += conv(before, after, 1)
        before = after
    return total + (before + 1) * n_classes


def count_bottlenecks(depths: tuple[int, ...], *, pooled: int = 1, n_classes: int = 10) -> int:
    total, before = conv(3, 64, 3), 64
    for depth, width in zip(depths, (64, 128, 256, 512), strict=True):
        total += conv(before, 4 * width, 1)  # the shortcut of the first block
        for _ in range(depth):
            total += conv(before, width, 1) + conv(width, width, 3) + conv(width, 4 * width, 1)
            before = 4 * width
    return total + (before * pooled**2 + 1) * n_classes


def count_dense(depths: tuple[int, ...], growth: int, n_classes: int) -> int:
    """Normalisation comes before a convolution here: scale and shift of what goes in."""
    channels = 2 * growth
    total = 3 * 9 * channels
    for index, depth in enumerate(depths):
        if index > 0:
            total += 2 * channels + channels * (channels // 2)
            channels //= 2
        for _ in range(depth):
            total += 2 * channels + channels * 4 * growth
            total += 2 * 4 * growth + 4 * growth * 9 * growth
            channels += growth
    return total + 2 * channels + (channels + 1) * n_classes


COUNTS = {
    "resnet8": 75_290,
    "resnet20": 269_722,
    "resnet32": 464_154,
    "resnet44": 658_586,
    "resnet56": 853_018,
    "resnet110": 1_727_962,
    "resnet50": 23_520_842,
    "resnet50-tiny": 23_582_282,
    "resnet110-bottleneck": 45_864_522,
    "wide-resnet-26-10": 36_481_434,
    "densenet121": 6_956_298,
}
DERIVED = {
    **{f"resnet{depth}": count_6n2(depth) for depth in (8, 20, 32, 44, 56, 110)},
    "resnet50": count_bottlenecks((3, 4, 6, 3)),
    "resnet50-tiny": count_bottlenecks((3, 4, 6, 3), pooled=2),
    "resnet110-bottleneck": count_bottlenecks((3, 4, 26, 3)),
    "wide-resnet-26-10": count_6n2(26, width=10),
    "densenet121": count_dense((6, 12, 24, 16), 32, 10),
}


@pytest.fixture(scope="module")
def networks() -> dict[str, nn.Module]:
    """The networks for images, built once: the large ones take a second each."""
    torch.manual_seed(0)
    return {name: build(name, 10) for name in IMAGES}


def test_names():
    assert set(MODELS) == {*IMAGES, *NEEDED}


@pytest.mark.slow
def test_counts_of_parameters(networks):
    assert COUNTS == DERIVED
    assert {name: n_parameters(network) for name, network in networks.items()} == COUNTS


def test_counts_of_other_sizes():
    assert n_parameters(build("resnet20", 100, in_channels=1)) == count_6n2(
        20, channels=1, n_classes=100
    )
    assert n_parameters(cifar_resnet(10, depth=14)) == count_6n2(14)
    assert n_parameters(wide_resnet(7, depth=8, width=3)) == count_6n2(8, width=3, n_classes=7)
    tiny = bottleneck_resnet(200, pooled=2)
    assert n_parameters(tiny) == count_bottlenecks((3, 4, 6, 3), pooled=2, n_classes=200)
    small = DenseNet(5, depths=(2, 3), growth=4)
    assert n_parameters(small) == count_dense((2, 3), 4, 5)


def test_counts_of_text_networks():
    text = build("text-cnn", 20, n_words=1000)
    convolutions = (100 * 5 + 1) * 128 + 2 * (128 * 5 + 1) * 128
    assert n_parameters(text) == 1000 * 100 + convolutions + 129 * 128 + 129 * 20
    tree = build("tree-lstm", 3, n_words=1000)
    assert n_parameters(tree) == 1000 * 300 + 301 * 300 + 301 * 600 + 151 * 3
    gated = build("tree-lstm", 2, n_words=10, n_dimensions=100, memory=20, output_gate=True)
    assert n_parameters(gated) == 10 * 100 + 101 * 40 + 41 * 100 + 21 * 2
    assert n_parameters(build("mlp", 3, n_features=4, hidden=(8, 5))) == 5 * 8 + 9 * 5 + 6 * 3


def test_layers_of_the_depth_in_the_name(networks):
    """Convolutions and linear layers on the way, shortcuts apart."""
    for name, network in networks.items():
        depth = {"wide-resnet-26-10": 26, "densenet121": 121, "resnet50-tiny": 50}.get(name)
        on_the_way = [
            module
            for path, module in network.named_modules()
            if isinstance(module, nn.Conv2d | nn.Linear) and "shortcut" not in path
        ]
        wanted = depth or int(name.removeprefix("resnet").removesuffix("-bottleneck"))
        assert len(on_the_way) == wanted, name


@pytest.mark.parametrize("name", IMAGES)
def test_one_row_of_finite_logits_for_one_image(networks, name):
    network = networks[name].eval()
    with torch.no_grad():
        logits = network(torch.randn(1, 3, 32, 32))
    assert logits.shape == (1, 10)
    assert logits.isfinite().all()
    network.train()


@pytest.mark.parametrize("name", ["resnet8", "resnet20", "densenet-small", "resnet50-small"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("pixels", [8, 28, 32, 64])
def test_shapes(name, channels, pixels):
    network = {
        "resnet8": lambda: build("resnet8", 10, in_channels=channels),
        "resnet20": lambda: build("resnet20", 10, in_channels=channels),
        "densenet-small": lambda: DenseNet(10, depths=(1, 1, 1, 1), growth=4, in_channels=channels),
        "resnet50-small": lambda: bottleneck_resnet(
            10, depths=(1, 1, 1, 1), in_channels=channels, pooled=2 if pixels == 64 else 1
        ),
    }[name]()
    images = torch.randn(2, channels, pixels, pixels)
    assert network(images).shape == (2, 10)
    with torch.no_grad():
        assert network.eval()(images[:1]).shape == (1, 10)
        assert network(torch.randn(3, channels, pixels, pixels + 4)).shape == (3, 10)
        assert network(images[:0]).shape == (0, 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: build("resnet8", 10),
        lambda: bottleneck_resnet(10, depths=(1, 1, 1, 1)),
        lambda: wide_resnet(10, depth=8, width=2),
        lambda: DenseNet(10, depths=(1, 1, 1, 1), growth=4),
    ],
)
def test_channels_last_changes_nothing(make):
    torch.manual_seed(0)
    plain = make().double()
    last = copy.deepcopy(plain).to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 16, 16, dtype=torch.float64)
    labels = torch.arange(4)
    losses = []
    for network, given in (
        (plain, images),
        (last, images.contiguous(memory_format=torch.channels_last)),
    ):
        loss = F.cross_entropy(network(given), labels)
        loss.backward()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    for (name, a), b in zip(plain.named_parameters(), last.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-8, atol=1e-10, msg=name)


def batch_for(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    if name == "mlp":
        inputs = torch.randn(8, 3, 4, 4, generator=generator)
    elif name == "text-cnn":
        inputs = torch.randint(0, 50, (8, 30), generator=generator)
    else:
        inputs = torch.randn(8, 3, 16, 16, generator=generator)
    return inputs, torch.arange(8) % 4


@pytest.mark.parametrize("name", [*SMALL, "text-cnn", "mlp"])
def test_training_steps(name):
    """Every parameter takes part, and the loss falls."""
    torch.manual_seed(0)
    network = build(name, 4, **NEEDED.get(name, {}))
    inputs, labels = batch_for(name)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05)
    losses = []
    for _ in range(6):
        loss = F.cross_entropy(network(inputs), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


@pytest.mark.parametrize("name", [*SMALL, "densenet121", *NEEDED])
def test_weights_come_from_the_seed(name):
    def state(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return build(name, 4, **NEEDED.get(name, {})).state_dict()

    first, again, other = state(1), state(1), state(2)
    assert all(torch.equal(first[key], again[key]) for key in first)
    weights = [key for key in first if key.endswith("conv1.weight") or "classifier" in key]
    assert weights
    assert all(not torch.equal(first[key], other[key]) for key in weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "initialisation"),
    [
        *(("resnet20", "he"), ("wide-resnet-26-10", "he"), ("resnet50-tiny", "he")),
        *(("resnet50", "torch"), ("densenet121", "torch")),
    ],
)
def test_initial_weights(name, initialisation):
    """He: normal, variance 2 / (side^2 x channels out); torch: uniform, variance 1 / (3 fan-in)."""
    torch.manual_seed(0)
    network = build(name, 10)
    checked = 0
    for path, layer in network.named_modules():
        if not isinstance(layer, nn.Conv2d) or layer.weight.numel() < 4000:
            continue
        fan_in = layer.weight[0].numel()
        fan_out = layer.weight.numel() // layer.in_channels
        weights = layer.weight.detach().flatten()
        variance = 2 / fan_out if initialisation == "he" else 1 / (3 * fan_in)
        assert weights.var().item() == pytest.approx(variance, rel=0.12), path
        kurtosis = (weights**4).mean() / weights.var() ** 2
        assert kurtosis.item() == pytest.approx(3 if initialisation == "he" else 1.8, rel=0.15)
        checked += 1
    assert checked > 10
    torch.manual_seed(0)
    other = bottleneck_resnet(10, depths=(1, 1, 1, 1), initialisation="he")
    weight = other.stages[0][0].conv2.weight
    assert weight.var().item() == pytest.approx(2 / (9 * 64), rel=0.1)


def plain_block(block: nn.Module, x: torch.Tensor, stride: int) -> torch.Tensor:
    """A basic block with a padded shortcut, by the letter of He et al."""
    out = F.conv2d(x, block.conv1.weight, stride=stride, padding=1)
    out = F.relu(F.batch_norm(out, None, None, block.norm1.weight, block.norm1.bias, True))
    out = F.conv2d(out, block.conv2.weight, padding=1)
    out = F.batch_norm(out, None, None, block.norm2.weight, block.norm2.bias, True)
    if stride == 2:
        channels, height, width = x.shape[1:]
        short = torch.zeros_like(out)
        side = (out.shape[1] - channels) // 2
        for row in range(0, height, 2):
            for column in range(0, width, 2):
                short[:, side : side + channels, row // 2, column // 2] = x[:, :, row, column]
        x = short
    return F.relu(out + x)


@pytest.mark.parametrize("pixels", [8, 7])
def test_resnet8_is_what_the_paper_says(pixels):
    torch.manual_seed(0)
    network = build("resnet8", 3).double()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias)
    images = torch.randn(3, 3, pixels, pixels, dtype=torch.float64)
    x = F.conv2d(images, network.stem.weight, padding=1)
    x = F.relu(F.batch_norm(x, None, None, network.stem_norm.weight, network.stem_norm.bias, True))
    for stage, stride in zip(network.stages, (1, 2, 2), strict=True):
        x = plain_block(stage[0], x, stride)
    logits = x.mean((2, 3)) @ network.classifier.weight.T + network.classifier.bias
    torch.testing.assert_close(network(images), logits)


def test_the_pooled_grid_is_that_of_tinyimagenet():
    """Four quarters of what is left of the image, each channel's beside each other."""
    torch.manual_seed(0)
    network = bottleneck_resnet(5, depths=(1, 1, 1, 1), pooled=2).eval()
    with torch.no_grad():
        images = torch.randn(2, 3, 64, 64)
        left = network.stages(F.relu(network.stem_norm(network.stem(images))))
        assert left.shape == (2, 2048, 8, 8)
        quarters = F.avg_pool2d(left, 4).flatten(1)
        torch.testing.assert_close(network(images), network.classifier(quarters))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*IMAGES, "text-cnn", "mlp"])
def test_the_classifier_gives_the_logits(networks, name):
    """Doubling the weights of ``classifier`` doubles the logits."""
    network = networks[name] if name in IMAGES else build(name, 4, **NEEDED[name])
    assert type(network.classifier) is nn.Linear
    inputs, _ = batch_for(name)
    with torch.no_grad():
        before = network.eval()(inputs)
        for factor in (2.0, 0.5):
            for parameter in network.classifier.parameters():
                parameter.mul_(factor)
            wanted = 2 * before if factor > 1 else before
            torch.testing.assert_close(network(inputs), wanted)
    network.train()


class TestTextCNN:
    def reference(self, network: TextCNN, tokens: list[int]) -> torch.Tensor:
        """One text, padded far on both sides, every window by itself."""
        padded = [0] * 25 + tokens + [0] * 25
        x = network.words.weight[torch.tensor(padded)]  # (length, dimensions)
        for index, layer in enumerate((network.conv1, network.conv2, network.conv3)):
            windows = [x[i : i + 5] for i in range(len(x) - 4)]
            x = torch.stack(
                [(layer.weight * window.T).sum((1, 2)) + layer.bias for window in windows]
            ).relu()
            if index < 2:
                x = torch.stack([x[i : i + 5].max(0).values for i in range(len(x) - 4)])
        hidden = network.hidden(x.max(0).values).relu()
        return network.classifier(hidden)

    def test_every_window_by_itself(self):
        torch.manual_seed(0)
        network = TextCNN(3, n_words=20, n_dimensions=4, channels=6).double().eval()
        for tokens in ([3], [4, 0, 5], list(range(1, 18))):
            expected = self.reference(network, tokens)
            torch.testing.assert_close(network(torch.tensor([tokens]))[0], expected)

    def test_padding_does_not_count(self):
        torch.manual_seed(0)
        network = TextCNN(3, n_words=20, channels=16).double().eval()
        texts = [[5], [1, 2, 3], list(range(1, 20)), [7] * 60]
        alone = torch.cat([network(torch.tensor([text])) for text in texts])
        for width in (60, 61, 200):
            after = torch.tensor([text + [0] * (width - len(text)) for text in texts])
            before = torch.tensor([[0] * (width - len(text)) + text for text in texts])
            torch.testing.assert_close(network(after), alone)
            torch.testing.assert_close(network(before), alone)
        nothing = network(torch.zeros(1, 0, dtype=torch.int64))
        torch.testing.assert_close(nothing, network(torch.zeros(1, 40, dtype=torch.int64)))

    def test_gradients_of_texts_in_several_parts(self):
        """Of the definition, also where a text is in two parts."""
        torch.manual_seed(0)
        network = TextCNN(3, n_words=20, n_dimensions=4, channels=6).double().eval()
        texts = [torch.randint(1, 20, (length,)).tolist() for length in (300, 1, 250, 80, 17)]
        longest = max(map(len, texts))
        tokens = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
        expected = torch.stack([self.reference(network, text) for text in texts])
        torch.testing.assert_close(network(tokens), expected)
        weights = torch.randn(expected.shape, dtype=torch.float64)
        parameters = dict(network.named_parameters())
        found, wanted = (
            torch.autograd.grad((logits * weights).sum(), list(parameters.values()))
            for logits in (network(tokens), expected)
        )
        for name, one, other in zip(parameters, found, wanted, strict=True):
            skipped = 1 if name == "words.weight" else 0  # padding is not trained
            torch.testing.assert_close(one[skipped:], other[skipped:], msg=name)

    def test_given_vectors_are_kept_and_not_trained(self):
        vectors = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float16)
        network = TextCNN(3, embeddings=vectors)
        kept = torch.from_numpy(vectors.astype(np.float32))
        assert torch.equal(network.words.weight[1:], kept[1:])
        assert not network.words.weight[0].any()
        assert not network.words.weight.requires_grad
        assert "words.weight" in network.state_dict()
        network(torch.tensor([[1, 2, 3]])).sum().backward()
        assert network.words.weight.grad is None
        assert vectors[0].any(), "the caller's array is left alone"

    @pytest.mark.parametrize("options", [{"n_words": 20}, {"embeddings": torch.ones(20, 8)}])
    def test_trained_vectors_leave_padding_at_zero(self, options):
        network = TextCNN(3, train_words=True, **options)
        optimiser = torch.optim.SGD(network.parameters(), lr=1.0, weight_decay=0.1)
        before = network.words.weight.detach().clone()
        network(torch.tensor([[1, 2, 3, 0]])).sum().backward()
        optimiser.step()
        assert not network.words.weight[0].any()
        assert not torch.equal(network.words.weight[1], before[1])


class TestAdapted:
    class Named(nn.Module):
        """Returns its logits in another form; the last linear layer is not the classifier."""

        def __init__(self, form) -> None:
            super().__init__()
            self.form = form
            self.head = nn.Linear(4, 3)
            self.auxiliary = nn.Linear(4, 7)

        def forward(self, x):
            return self.form(self.head(x))

    class Output:
        def __init__(self, logits) -> None:
            self.logits = logits

    @pytest.mark.parametrize(
        "form",
        [
            lambda logits: logits,
            lambda logits: {"loss": None, "logits": logits},
            lambda logits: (logits, None),
            lambda logits: TestAdapted.Output(logits),
        ],
    )
    def test_forms_of_output(self, form):
        network = self.Named(form)
        adapted = Adapted(network, 3)
        x = torch.randn(2, 4)
        assert torch.equal(adapted(x), network.head(x))
        assert adapted.classifier is network.head
        assert set(adapted.state_dict()) == {f"network.{key}" for key in network.state_dict()}
        assert copy.deepcopy(adapted).classifier is not network.head

    def test_other_inputs_and_another_classifier(self):
        network = self.Named(lambda logits: logits)
        adapted = Adapted(
            network, 3, classifier="auxiliary", call=lambda net, inputs: net(inputs["x"])
        )
        x = torch.randn(2, 4)
        assert torch.equal(adapted({"x": x}), network.head(x))
        assert adapted.classifier is network.auxiliary

    def test_a_transformer(self):
        transformers = pytest.importorskip("transformers")
        config = transformers.BertConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            num_labels=5,
        )
        network = Adapted(
            transformers.BertForSequenceClassification(config),
            5,
            call=lambda bert, tokens: bert(tokens, attention_mask=(tokens != 0).long()),
        ).eval()
        assert network.classifier.out_features == 5
        alone = network(torch.tensor([[3, 4]]))
        padded = network(torch.tensor([[3, 4, 0, 0]]))
        torch.testing.assert_close(alone, padded)

    def test_what_is_refused(self):
        network = self.Named(lambda logits: "text")
        with pytest.raises(
            ValueError, match=r"no linear layer of 9 outputs; found head \(3\), aux"
        ):
            Adapted(network, 9)
        with pytest.raises(ValueError, match=r"found 'fc'. It has head, auxiliary"):
            Adapted(network, 3, classifier="fc")
        with pytest.raises(ValueError, match="must return logits; found str 'text'"):
            Adapted(network, 3)(torch.randn(2, 4))
        with pytest.raises(ValueError, match="network must be a Module"):
            Adapted("resnet18", 3)


class TestBuild:
    def test_a_network_by_a_function(self):
        network = build("calibrant.training.models:MLP", 3, n_features=4)
        assert isinstance(network, Adapted)
        assert network(torch.zeros(2, 4)).shape == (2, 3)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("resnet21x", "model must be one of resnet8, resnet20, .*mlp; found 'resnet21x'"),
            ("Resnet50", "Did you mean 'resnet50'"),
            ("no.such.package:net", "needs the module 'no.such.package'"),
            ("calibrant.training.models:net", "found nothing there"),
            ("calibrant.training.models:__all__", "found list"),
            (":net", "needs the module ''"),
        ],
    )
    def test_names_that_are_refused(self, name, message):
        with pytest.raises(ValueError, match=message):
            build(name, 10)

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            (
                "resnet8",
                {"width": 2},
                "resnet8 has no option 'width'. It has in_channels, shortcut",
            ),
            ("resnet8", {"depth": 20}, "resnet8 has no option 'depth'"),
            ("mlp", {}, "mlp needs n_features; found no options. Pass n_features="),
            ("text-cnn", {}, "exactly one of embeddings and n_words is needed; found neither"),
            ("text-cnn", {"n_words": 4, "embeddings": np.ones((4, 2))}, "found both"),
            ("mlp", {"n_features": 2.5}, "n_features must be a whole number"),
        ],
    )
    def test_options_that_are_refused(self, name, options, message):
        with pytest.raises(ValueError, match=message):
            build(name, 10, **options)

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("resnet8", {"in_channels": 0}, "in_channels must be from 1"),
            ("resnet8", {"shortcut": "conv"}, "shortcut must be one of pad, projection"),
            ("resnet50", {"initialisation": "xavier"}, "initialisation must be one of he, torch"),
            ("mlp", {"n_features": 4, "hidden": (0,)}, "hidden must be from 1"),
            ("mlp", {"n_features": 4, "dropout": 1.0}, "dropout must be at least 0 and below 1"),
            ("text-cnn", {"embeddings": np.ones(4)}, r"embeddings must have the shape .* \(4,\)"),
            ("tree-lstm", {"embeddings": [[0.0], [math.nan]]}, "NaN or infinity in row 1"),
        ],
    )
    def test_values_that_are_refused(self, name, options, message):
        with pytest.raises(ValueError, match=message):
            build(name, 10, **options)

    @pytest.mark.parametrize("n_classes", [1, 0, -3])
    @pytest.mark.parametrize("name", ["resnet8", "mlp", "text-cnn", "tree-lstm"])
    def test_too_few_classes(self, name, n_classes):
        with pytest.raises(ValueError, match="n_classes must be from 2"):
            build(name, n_classes, **NEEDED.get(name, {}))

    def test_depths_that_do_not_exist(self):
        for make in (cifar_resnet, wide_resnet):
            with pytest.raises(ValueError, match=r"6n\+2.*found 18. Take 14 or 20"):
                make(10, depth=18)


class TestInputs:
    def test_images(self):
        network = build("resnet8", 10)
        with pytest.raises(ValueError, match=r"3 channels; found 1 in .*in_channels=1"):
            network(torch.zeros(2, 1, 28, 28))
        with pytest.raises(ValueError, match=r"found \(3, 32, 32\). A single image"):
            network(torch.zeros(3, 32, 32))
        with pytest.raises(ValueError, match="at least 8x8 pixels; found 4x9"):
            DenseNet(10, growth=4)(torch.zeros(1, 3, 4, 9))

    def test_tables(self):
        with pytest.raises(ValueError, match=r"inputs of 4 numbers.*n_features=6"):
            MLP(3, n_features=4)(torch.zeros(2, 2, 3))

    @pytest.mark.parametrize(("token", "found"), [(20, 20), (-1, -1)])
    def test_tokens(self, token, found):
        network = TextCNN(3, n_words=20)
        with pytest.raises(ValueError, match=f"from 0 to 19.*found {found}"):
            network(torch.tensor([[1, token]]))


def test_logits_of_large_images_stay_finite():
    """Pixels of any size: normalisation takes them in training."""
    torch.manual_seed(0)
    network = ResNet(3, depths=(1, 1), widths=(8, 8), stem=8)
    assert network(1e8 * torch.randn(4, 3, 8, 8)).isfinite().all()


def test_an_mlp_without_hidden_layers_is_linear():
    network = MLP(3, n_features=4, hidden=())
    x = torch.randn(5, 4)
    torch.testing.assert_close(network(x), F.linear(x, *network.classifier.parameters()))
    dropped = MLP(3, n_features=4, hidden=(50,), dropout=0.5)
    assert not torch.equal(dropped(x), dropped(x))
    assert torch.equal(dropped.eval()(x), dropped(x))
