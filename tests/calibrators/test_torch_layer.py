"""Calibrators as torch layers."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from calibrant import FocalCalibration, Identity, TemperatureScaling
from calibrant._numerics import precision
from calibrant.calibrators import CALIBRATORS, NotFittedError, torch_layer
from calibrant.calibrators.torch_layer import CalibratorModule
from tests.builders import build, draw_samples

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")

IN_STEPS = ("histogram", "bbq", "venn-abers")
"""Methods that are constant between jumps, and have no gradient."""

every_method = pytest.mark.parametrize("name", sorted(CALIBRATORS))


@functools.cache
def fitted(name, k=3):
    return build(name).fit(*draw_samples(600, k))


def rows(k=3, dtype=torch.float64):
    """Ordinary, saturated, tied, masked and huge rows."""
    rng = np.random.default_rng(1)
    ordinary = 3.0 * rng.normal(size=(20, k))
    saturated = 60.0 * rng.normal(size=(5, k))
    tied = np.zeros((2, k))
    tied[1, :2] = 4.0
    masked = 3.0 * rng.normal(size=(6, k))
    masked[:, 1] = -np.inf
    alone = np.full((1, k), -np.inf)
    alone[0, 0] = 1.0
    huge = 1e4 * rng.normal(size=(5, k))
    parts = [ordinary, saturated, tied, masked, alone, huge, 1e26 * huge]
    return torch.from_numpy(np.concatenate(parts)).to(dtype)


@every_method
@pytest.mark.parametrize(
    ("k", "dtype"), [(2, torch.float32), (3, torch.float64), (10, torch.float32)]
)
def test_gives_what_the_calibrator_gives(name, k, dtype):
    calibrator, logits = fitted(name, k), rows(k, dtype)
    module = calibrator.as_module()
    expected = calibrator.predict_log_proba(logits=logits)
    torch.testing.assert_close(module(logits), expected, rtol=0, atol=0)
    torch.testing.assert_close(module.probs(logits), calibrator.predict_proba(logits=logits))
    assert module(logits).dtype == dtype


@every_method
def test_half_precision_comes_out_as_float32(name):
    module, logits = fitted(name).as_module(), rows()[:20]
    for half in (torch.float16, torch.bfloat16):
        found = module(logits.to(half))
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, module(logits.to(half).float()))


@every_method
def test_a_network_in_half_precision_keeps_its_calibrator(name):
    module, logits = fitted(name).as_module(), rows()[:20]
    expected = module(logits)
    for cast in (module.half, module.bfloat16, module.float, lambda: module.to(torch.float16)):
        cast()
        torch.testing.assert_close(module(logits), expected, rtol=0, atol=0)


@every_method
def test_autocast_does_not_round(name):
    module, logits = fitted(name).as_module(), rows(dtype=torch.float32)[:20]
    expected = module(logits)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(module(logits), expected, rtol=0, atol=0)
        module(logits.to(torch.bfloat16))
        assert torch.is_autocast_enabled("cpu")


@every_method
def test_training_and_evaluating_are_the_same(name):
    module, logits = fitted(name).as_module(), rows()
    assert torch.equal(module.train()(logits), module.eval()(logits))
    assert list(module.parameters()) == []


@every_method
def test_gradients_reach_the_network_and_are_finite(name):
    module = fitted(name).as_module()
    network = nn.Sequential(nn.Linear(4, 3), module)
    inputs = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    log_probs = network(inputs)
    if name in IN_STEPS:
        assert not log_probs.requires_grad
        return
    nn.functional.nll_loss(log_probs, torch.zeros(7, dtype=torch.int64)).backward()
    assert torch.isfinite(network[0].weight.grad).all()
    logits = rows().requires_grad_()
    log_probs = module(logits)
    log_probs[torch.isfinite(log_probs)].sum().backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("name", sorted(set(CALIBRATORS) - set(IN_STEPS)))
def test_gradients_in_single_precision_are_those_in_double(name):
    module, weights = fitted(name).as_module(), torch.linspace(1.0, 2.0, 3)
    found = []
    for dtype in (torch.float32, torch.float64):
        logits = rows(dtype=torch.float32)[:20].to(dtype).requires_grad_()
        (module(logits) * weights).sum().backward()
        assert logits.grad.dtype == dtype
        found.append(logits.grad.double())
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("calibrator", [Identity(), FocalCalibration(gamma=2.0)])
def test_gradients_are_those_of_the_map(calibrator):
    module = calibrator.fit(*draw_samples(600)).as_module()
    assert torch.autograd.gradcheck(module, rows()[:10].requires_grad_())


@every_method
def test_values_are_not_looked_at(name):
    logits = rows()[:2]
    logits[0, 1] = float("nan")
    found = fitted(name).as_module()(logits)
    assert found.shape == logits.shape
    assert torch.isfinite(found[1]).all()


@every_method
def test_the_last_layer_of_a_network_of_any_shape(name):
    module = fitted(name).as_module()
    logits = rows()[:24]
    flat = module(logits)
    torch.testing.assert_close(module(logits.reshape(2, 3, 4, 3)), flat.reshape(2, 3, 4, 3))
    torch.testing.assert_close(module(logits[0]), flat[0])
    assert module(logits[:0]).shape == (0, 3)


def test_another_number_of_classes_is_refused():
    module = fitted("temperature").as_module()
    with pytest.raises(ValueError, match="fitted on 3 classes; found 4"):
        module(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="fitted on 3 classes; found 1"):
        module(torch.zeros(2, 1))


def test_needs_a_fitted_calibrator():
    with pytest.raises(NotFittedError, match="has not been fitted"):
        CalibratorModule(TemperatureScaling())


@pytest.mark.slow
@every_method
def test_exports_with_any_number_of_rows(name):
    module = fitted(name).as_module()
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        module, (torch.zeros(2, 3),), dynamic_shapes={"logits": {0: batch}}
    ).module()
    logits = rows(dtype=torch.float32)
    for n in (0, 1, len(logits)):
        torch.testing.assert_close(program(logits[:n]), module(logits[:n]))


@pytest.mark.parametrize(
    "name",
    [
        "auto",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("floored-temperature", "focal", "histogram")
        ),
    ],
)
def test_a_network_compiles_with_the_layer_in_one_piece_and_without_warnings(name):
    network = nn.Sequential(nn.Linear(3, 3), fitted(name).as_module())
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    inputs = rows(dtype=torch.float32)[:20]
    torch.testing.assert_close(compiled(inputs), network(inputs))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", ["auto", "focal-temperature", "temperature"])
def test_compiled_code_gives_the_same(name):
    network = nn.Sequential(nn.Linear(3, 3), fitted(name).as_module())
    compiled = torch.compile(network, fullgraph=True)
    inputs = rows(dtype=torch.float32)[:20]
    with torch.no_grad():
        torch.testing.assert_close(compiled(inputs), network(inputs))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:You are using the legacy:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The feature will be removed:DeprecationWarning")
@pytest.mark.parametrize("opset", [13, 20])
@pytest.mark.parametrize("name", ["auto", "focal-temperature", "histogram", "temperature"])
def test_the_older_exporter_to_onnx_gives_the_same(name, opset, tmp_path):
    """One model of network and layer, for any number of rows, without a warning of its own."""
    network = nn.Sequential(nn.Identity(), fitted(name).as_module())
    path, axes = str(tmp_path / "network.onnx"), {0: "batch"}
    torch.onnx.export(
        network,
        (torch.zeros(2, 3),),
        path,
        dynamo=False,
        opset_version=opset,
        input_names=["logits"],
        output_names=["log_probs"],
        dynamic_axes={"logits": axes, "log_probs": axes},
    )
    model = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    logits = rows(dtype=torch.float32)
    for n in (1, len(logits)):
        (found,) = model.run(None, {"logits": logits[:n].numpy()})
        torch.testing.assert_close(
            torch.from_numpy(found), network(logits[:n]), rtol=1e-6, atol=1e-6
        )


def test_indices_are_taken_with_broadcasting():
    values, indices = torch.arange(6.0).reshape(1, 2, 3), torch.tensor([[[2], [0]], [[1], [1]]])
    for dim, at in ((-1, indices), (2, indices), (0, torch.zeros(1, 2, 1, dtype=torch.int64))):
        expected = torch.take_along_dim(values, at, dim)
        assert torch.equal(torch_layer._gathered(values, at, dim), expected)


@every_method
def test_is_saved_with_the_network(name, tmp_path):
    logits, labels = draw_samples(600, seed=5)
    calibrator = build(name).fit(0.3 * logits, labels)
    module, other = fitted(name).as_module(), calibrator.as_module()
    expected = module(rows())
    torch.save(module.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    shapes = [array.shape for array in module.state_dict().values()]
    if shapes == [array.shape for array in other.state_dict().values()]:
        other.load_state_dict(state)
        assert torch.equal(other(rows()), expected)
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(copied(rows()), expected)


def test_a_temperature_is_loaded_too():
    one, other = (
        TemperatureScaling().fit(c * draw_samples(600)[0], draw_samples(600)[1]) for c in (1.0, 0.2)
    )
    module = one.as_module()
    assert not torch.equal(module(rows()), other.as_module()(rows()))
    module.load_state_dict(other.as_module().state_dict())
    assert torch.equal(module(rows()), other.as_module()(rows()))
    with pytest.raises(ValueError, match="identity layer has 0 numbers"):
        fitted("identity").as_module().load_state_dict(module.state_dict())


def test_a_state_that_no_calibrator_has_is_refused():
    module = fitted("temperature").as_module()
    state = {"_extra_state": torch.tensor([-2.0], dtype=torch.float64)}
    with pytest.raises(ValueError, match="temperature is -2, not between"):
        module.load_state_dict(state)


def test_stays_as_it_is_when_the_calibrator_is_fitted_again():
    calibrator = TemperatureScaling().fit(*draw_samples(600))
    module = calibrator.as_module()
    before = module(rows())
    calibrator.fit(5.0 * draw_samples(600)[0], draw_samples(600)[1])
    assert torch.equal(module(rows()), before)


def test_says_what_it_is():
    module = FocalCalibration(gamma=2.5).fit(*draw_samples(600)).as_module()
    assert repr(module) == "CalibratorModule(FocalCalibration(gamma=2.5), n_classes=3, gamma=2.5)"
    assert module.n_classes == 3


@every_method
def test_follows_to_devices_without_double_precision(name, monkeypatch):
    monkeypatch.setattr(precision, "WITHOUT_FLOAT64", ("meta",))
    module = fitted(name).as_module().to("meta")
    assert torch.float64 not in {array.dtype for array in module.buffers()}
    assert module(torch.zeros(2, 3, device="meta")).device.type == "meta"


@every_method
def test_computes_in_single_precision_where_there_is_no_other(name, monkeypatch):
    logits = rows(dtype=torch.float32)[:20]
    expected = fitted(name).as_module()(logits)
    monkeypatch.setattr(precision, "WITHOUT_FLOAT64", ("cpu",))
    module = fitted(name).as_module().to("cpu")
    assert torch.float64 not in {array.dtype for array in module.buffers()}
    assert module(logits).dtype == torch.float32
    torch.testing.assert_close(module(logits), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("exponent", [0, 8, 15, 17, 20, 200])
@pytest.mark.parametrize("name", ["temperature", "bias-corrected-temperature", "auto"])
def test_nearly_equal_logits_above_very_low_ones(name, exponent):
    """Two logits a unit apart, all others as far below them as can be: both count in full."""
    calibrator = fitted(name, 10)
    rng = np.random.default_rng(2)
    logits = -(10.0**exponent) * (3.0 + rng.random((50, 10)))
    logits[:, [3, 7]] = rng.normal(size=(50, 2))
    probs = calibrator.predict_proba(logits=logits)
    layer = calibrator.as_module()(torch.from_numpy(logits)).exp().numpy()
    np.testing.assert_allclose(layer, probs, rtol=1e-12, atol=1e-15)
    if exponent > 2:
        ruled_out = np.where(logits < -100.0, -np.inf, logits)
        np.testing.assert_allclose(calibrator.predict_proba(logits=ruled_out), probs, atol=1e-12)
