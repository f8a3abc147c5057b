"""The losses under torch.compile, torch.func, autocast and half precision."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from calibrant.losses import LOSSES, FocalLoss, GammaPolicy, SigmoidFocalLoss, step as step_module

every_loss = pytest.mark.parametrize("name", LOSSES)
# One of each class and policy; others differ in a number.
each_kind = pytest.mark.parametrize(
    "name",
    ["ce", "fl-2", "fls-531", "fla-532", "flsd-53", "adafocal", "brier", "mmce", "proper-focal"],
)
# What torch says of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Dynamo detected a call:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),
]


def batch(n: int = 12, dtype: torch.dtype = torch.float32):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(n, 5, generator=generator)
    labels = torch.randint(5, (n,), generator=generator)
    labels[3] = -100
    return logits.to(dtype), labels


def trained(name: str) -> torch.nn.Module:
    """The loss in the middle of a run, with gammas of both signs if it is AdaFocal."""
    loss = LOSSES[name]()
    loss.start_epoch(3, 7)
    if name == "adafocal":
        loss.gamma.gammas.copy_(torch.linspace(-2, 5, 15))
    return loss


def gradient(loss, logits, target):
    leaf = logits.detach().clone().requires_grad_()
    value = loss(leaf, target)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
@each_kind
def test_compiles_in_one_piece(name):
    logits, labels = batch()
    loss = trained(name)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for target in (labels, torch.softmax(logits.flip(0), 1)):
        for ours, theirs in zip(
            gradient(compiled, logits, target), gradient(loss, logits, target), strict=True
        ):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.slow
def test_compiles_to_machine_code():
    logits, labels = batch()
    for name in ("fl-3", "adafocal"):
        loss = trained(name)
        compiled = torch.compile(loss, fullgraph=True)
        for ours, theirs in zip(
            gradient(compiled, logits, labels), gradient(loss, logits, labels), strict=True
        ):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.slow
def test_a_compiled_loss_sees_new_epochs_and_bins_without_compiling_again():
    logits, labels = batch()
    for name, change in (
        ("fls-531", lambda loss: loss.start_epoch(6, 7)),
        ("adafocal", lambda loss: loss.update(logits, labels)),
    ):
        torch._dynamo.reset()
        loss = LOSSES[name]()
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        before = compiled(logits, labels)
        change(loss)
        with torch.compiler.set_stance("fail_on_recompile"):
            after = compiled(logits, labels)
        assert after != before
        torch.testing.assert_close(after, loss(logits, labels))


@pytest.mark.slow
def test_the_binary_loss_compiles():
    s, v = torch.linspace(-3, 3, 7), torch.linspace(0, 1, 7)
    loss = SigmoidFocalLoss(gamma=2.0)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for ours, theirs in zip(gradient(compiled, s, v), gradient(loss, s, v), strict=True):
        torch.testing.assert_close(ours, theirs)


@each_kind
def test_transforms_of_torch_func(name):
    logits, labels = batch(dtype=torch.float64)
    loss = trained(name)
    _, expected = gradient(loss, logits, labels)
    torch.testing.assert_close(torch.func.grad(loss)(logits, labels), expected)
    groups = logits.view(3, 4, 5), labels.view(3, 4)
    apart = [gradient(loss, x, y) for x, y in zip(*groups, strict=True)]
    both = torch.func.vmap(torch.func.grad_and_value(loss))(*groups)
    torch.testing.assert_close(both[0], torch.stack([g for _, g in apart]))
    torch.testing.assert_close(both[1], torch.stack([v for v, _ in apart]))
    direction = torch.randn(12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    value, slope = torch.func.jvp(lambda s: loss(s, labels), (logits,), (direction,))
    torch.testing.assert_close(value, loss(logits, labels))
    torch.testing.assert_close(slope, (expected * direction).sum())


@each_kind
def test_hessians(name):
    logits, labels = batch(n=4, dtype=torch.float64)
    loss = trained(name)
    ours = torch.func.hessian(lambda s: loss(s, labels))(logits)
    slow = torch.autograd.functional.hessian(lambda s: loss(s, labels), logits)
    torch.testing.assert_close(ours, slow)
    assert torch.autograd.gradgradcheck(lambda s: loss(s, labels), logits.requires_grad_())


@pytest.mark.parametrize("name", ["fl-2", "fls-531", "fla-532", "flsd-53", "adafocal", "brier"])
def test_per_sample_gradients(name):
    """The gradients of each sample by vmap are the rows of the gradient of the sum."""
    logits, labels = batch(dtype=torch.float64)
    loss = trained(name)
    each = torch.func.vmap(torch.func.grad(loss))(logits, labels)
    loss.reduction = "sum"
    _, whole = gradient(loss, logits, labels)
    torch.testing.assert_close(each, whole)


@pytest.mark.parametrize("name", ["ce", "fl-2", "adafocal"])
def test_many_gradients_at_once(name):
    logits, labels = batch(n=4, dtype=torch.float64)
    logits.requires_grad_()
    loss = trained(name)
    loss.reduction = "none"
    directions = torch.eye(4, dtype=torch.float64)
    (together,) = torch.autograd.grad(
        loss(logits, labels), logits, directions, is_grads_batched=True
    )
    for direction, found in zip(directions, together, strict=True):
        (alone,) = torch.autograd.grad(loss(logits, labels), logits, direction)
        torch.testing.assert_close(found, alone)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", ["fls-531", "adafocal"])
def test_a_state_that_changes_before_the_backward_pass_does_not_matter(name, smoothing):
    logits, labels = batch(dtype=torch.float64)
    loss = trained(name)
    loss.label_smoothing = smoothing
    value, expected = gradient(loss, logits, labels)
    leaf = logits.clone().requires_grad_()
    again = loss(leaf, labels)
    loss.start_epoch(6, 7)
    loss.update(logits, labels.clamp(min=0))
    (found,) = torch.autograd.grad(again, leaf, create_graph=True)
    torch.testing.assert_close(found.detach(), expected)
    torch.testing.assert_close(again.detach(), value)


@every_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_comes_in_and_float32_goes_out(name, dtype):
    logits, labels = batch(dtype=dtype)
    loss = trained(name)
    value, found = gradient(loss, logits, labels)
    exact, expected = gradient(loss, logits.float(), labels)
    assert value.dtype == torch.float32
    assert found.dtype == dtype
    torch.testing.assert_close(value, exact)
    torch.testing.assert_close(found, expected.to(dtype))


@pytest.mark.parametrize("shape", [(7, 5), (7, 5, 3)])
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_half_precision_is_widened_in_pieces(shape, rows, monkeypatch):
    numbers = rows * 5 * (shape[2] if len(shape) == 3 else 1)
    monkeypatch.setattr(step_module, "AT_ONCE", numbers)
    generator = torch.Generator().manual_seed(2)
    logits = (3 * torch.randn(shape, generator=generator)).bfloat16()
    labels = torch.randint(5, (7, *shape[2:]), generator=generator)
    labels[2] = -100
    for reduction in ("mean", "sum"):
        loss = FocalLoss(gamma=2.0, reduction=reduction, weight=torch.linspace(1, 2, 5))
        value, found = gradient(loss, logits, labels)
        exact, expected = gradient(loss, logits.float(), labels)
        torch.testing.assert_close(value, exact)
        torch.testing.assert_close(found, expected.bfloat16())


@every_loss
def test_autocast(name):
    """A network under autocast gives bfloat16 logits; the loss is that of a float32 softmax."""
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(20, 8, generator=generator)
    labels = torch.randint(5, (20,), generator=generator)
    torch.manual_seed(0)
    network = torch.nn.Linear(8, 5)
    loss = trained(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(data)
        value = loss(logits, labels)
    assert logits.dtype == torch.bfloat16
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(logits.float(), labels))
    value.backward()
    assert torch.isfinite(network.weight.grad).all()


def kept_bytes(run) -> tuple[int, torch.Tensor]:
    """Bytes that the graph of ``run`` keeps for the backward pass, each storage once."""
    kept = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        value = run()
    return sum(kept.values()), value


@pytest.mark.parametrize("name", ["fl-2", "flsd-53", "adafocal"])
def test_nothing_of_the_size_of_the_logits_is_kept_beyond_what_cross_entropy_keeps(name):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(64, 4000, generator=generator, requires_grad=True)
    labels = torch.randint(4000, (64,), generator=generator)
    size = logits.untyped_storage().nbytes()
    plain, _ = kept_bytes(lambda: F.cross_entropy(logits, labels))
    ours, _ = kept_bytes(lambda: LOSSES[name]()(logits, labels))
    # The logits themselves are the user's.
    assert ours - size <= 1.05 * plain
    half = logits.detach().bfloat16().requires_grad_()
    ours, _ = kept_bytes(lambda: LOSSES[name]()(half, labels))
    assert ours <= 1.05 * half.untyped_storage().nbytes()


def test_a_policy_of_ones_own_works_in_a_compiled_loss():
    class Linear(GammaPolicy):
        def forward(self, p):
            return 3.0 - 4.0 * p

    logits, labels = batch()
    loss = FocalLoss(gamma=Linear())
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits, labels), loss(logits, labels))
