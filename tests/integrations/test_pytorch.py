"""A model and a loader in, a model of calibrated log-probabilities out."""

from __future__ import annotations

import io
from collections import UserDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import calibrant
from calibrant import CalibrantError
from calibrant.integrations.pytorch import CalibratedModel
from tests.builders import draw_overconfident

LOGITS, LABELS = (torch.from_numpy(a) for a in draw_overconfident(600, 3, excess=2.0))
LOGITS = LOGITS.float()


class Recorder(nn.Module):
    """Returns its input, in the form of ``wrap``, and remembers how it was called."""

    def __init__(self, wrap=lambda logits: logits):
        super().__init__()
        self.wrap, self.calls = wrap, []
        self.body = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3, affine=False))
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, logits=None, **more):
        modes = [m.training for m in self.modules()]
        self.calls.append((any(modes), torch.is_grad_enabled(), sorted(more)))
        return self.wrap(self.weight * logits)


def batches(form=lambda x, y: (x, y)):
    return [form(LOGITS[i : i + 100], LABELS[i : i + 100]) for i in range(0, 600, 100)]


def linear(scale):
    layer = nn.Linear(3, 3, bias=False)
    layer.load_state_dict({"weight": scale * torch.eye(3)})
    return layer


def fitted(method=calibrant.TemperatureScaling):
    return method().fit(logits=LOGITS, labels=LABELS)


def test_a_data_loader_gives_the_fit_of_its_samples():
    loader = DataLoader(TensorDataset(LOGITS, LABELS), batch_size=128, shuffle=True)
    calibrated = calibrant.calibrate(nn.Identity(), loader)
    assert isinstance(calibrated, CalibratedModel)
    assert calibrated.calibrator.NAME == "auto"
    assert calibrated.report_.n_samples == 600
    expected = fitted(calibrant.AutoCalibration).predict_log_proba(logits=LOGITS)
    torch.testing.assert_close(calibrated(LOGITS), expected, rtol=1e-5, atol=1e-5)
    before, after = (calibrant.ece(logits=s, labels=LABELS) for s in (LOGITS, calibrated(LOGITS)))
    assert after < before / 2


@pytest.mark.parametrize(
    "form",
    [
        lambda x, y: (x, y),
        lambda x, y: [x, y, "index"],
        lambda x, y: {"logits": x, "labels": y, "attention_mask": y},
        lambda x, y: UserDict({"logits": x, "labels": y}),
        lambda x, y: (x, y.to(torch.uint8).numpy()),
    ],
    ids=["tuple", "list of three", "dict", "as transformers", "labels of numpy"],
)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda logits: logits,
        lambda logits: {"logits": logits},
        lambda logits: SimpleNamespace(logits=logits),
        lambda logits: (logits, None),
    ],
    ids=["tensor", "dict", "object", "tuple"],
)
def test_batches_and_outputs_of_many_forms(form, wrap):
    calibrated = calibrant.calibrate(Recorder(wrap), batches(form), "temperature")
    assert calibrated.calibrator.temperature_ == pytest.approx(fitted().temperature_)
    expected = fitted().predict_log_proba(logits=LOGITS)
    torch.testing.assert_close(calibrated(LOGITS).detach(), expected, rtol=1e-6, atol=1e-6)


def test_arguments_of_the_model_are_passed_without_the_labels():
    model = Recorder()
    form = lambda x, y: {"logits": x, "labels": y, "mask": [y, (y, "text")]}  # noqa: E731
    calibrated = calibrant.calibrate(model, batches(form), "temperature")
    assert [names for *_, names in model.calls] == [["mask"]] * 6
    calibrated(logits=LOGITS, mask=None)
    assert model.calls[-1][-1] == ["mask"]


def test_the_model_runs_once_in_eval_mode_without_gradients_and_gets_its_modes_back():
    model = Recorder().train()
    model.body[1].eval()  # frozen
    modes = [m.training for m in model.modules()]
    calibrated = calibrant.calibrate(model, batches(), "temperature")
    assert [call[:2] for call in model.calls] == [(False, False)] * 6
    assert [m.training for m in model.modules()] == modes
    assert calibrated.training
    assert torch.is_grad_enabled()
    assert calibrated(LOGITS).requires_grad


def test_modes_are_restored_after_an_error():
    model = Recorder().train()
    model.body[1].eval()
    modes = [m.training for m in model.modules()]

    def failing():
        yield LOGITS, LABELS
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        calibrant.calibrate(model, failing())
    assert [m.training for m in model.modules()] == modes


def test_tokens_of_batches_of_different_lengths_without_ignored_ones():
    """Token classification: (batch, tokens, classes), and -100 where a token has no label."""
    x, y = LOGITS.reshape(20, 30, 3), LABELS.reshape(20, 30)
    padded = torch.cat([x, torch.zeros(20, 5, 3)], dim=1)
    ignored = torch.cat([y, torch.full((20, 5), -100)], dim=1)
    loader = [(x[:5], y[:5]), (padded[5:], ignored[5:])]
    calibrated = calibrant.calibrate(nn.Identity(), loader, "temperature")
    assert calibrated.report_.n_samples == 600
    assert calibrated.calibrator.temperature_ == pytest.approx(fitted().temperature_)
    assert calibrated(x).shape == x.shape


def test_the_method_is_a_name_or_a_calibrator_that_stays_unfitted():
    given = calibrant.FocalCalibration(gamma=2.0)
    calibrated = calibrant.calibrate(nn.Identity(), batches(), given)
    assert calibrated.calibrator.gamma == 2.0
    assert not hasattr(given, "state_")
    with pytest.raises(CalibrantError, match=r"Pass a calibrator: method=FocalCalibration"):
        calibrant.calibrate(nn.Identity(), batches(), "focal")
    with pytest.raises(CalibrantError, match="temprature"):
        calibrant.calibrate(nn.Identity(), batches(), "temprature")


def test_half_precision_and_the_device_of_the_model():
    model = linear(1.0).to(torch.bfloat16)
    loader = batches(lambda x, y: (x.to(torch.bfloat16), y))
    calibrated = calibrant.calibrate(model, loader, "temperature", device="cpu")
    assert calibrated(LOGITS.to(torch.bfloat16)).dtype == torch.float32
    assert calibrated.to("meta")(torch.zeros(2, 3, device="meta", dtype=torch.bfloat16)).is_meta


def test_state_dict_saves_model_and_calibrator():
    one, other = (calibrant.calibrate(linear(s), batches(), "temperature") for s in (1.0, 2.0))
    content = io.BytesIO()
    torch.save(one.state_dict(), content)
    content.seek(0)
    other.load_state_dict(torch.load(content, weights_only=True))
    assert torch.equal(one(LOGITS), other(LOGITS))
    assert torch.equal(one.train()(LOGITS), one.eval()(LOGITS))


@pytest.mark.slow
def test_compiles_as_a_whole_without_warnings():
    calibrated = calibrant.calibrate(Recorder(), batches(), "focal-temperature")
    calibrated.model.calls = SimpleNamespace(append=lambda call: None)
    with torch.no_grad():
        found = torch.compile(calibrated, backend="eager", fullgraph=True)(LOGITS)
        torch.testing.assert_close(found, calibrated(LOGITS))


def test_is_silent_when_not_on_a_terminal_and_shows_a_bar_on_one(capsys, monkeypatch):
    calibrant.calibrate(nn.Identity(), batches(), "temperature")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    calibrant.calibrate(nn.Identity(), iter(batches()), "temperature")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "running the model" in printed.err


def with_nan(x, y):
    x = x.clone()
    x[7, 1] = float("nan")
    return x, y


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([], "the loader must give at least one batch; found none"),
        (batches(lambda x, y: (x, y + 1)), "labels must be between 0 and 2 for 3 classes; found 3"),
        (batches(with_nan), "logits must not contain NaN; found NaN in row 7"),
        (
            batches(lambda x, y: (x.softmax(-1), y)),
            "found rows that sum to 1, which look like probabilities. Remove the softmax",
        ),
        (batches(lambda x, y: (x[:, 0], y)), r"shape \(batch, classes\); found shape \(100,\)"),
        (batches(lambda x, y: (x[:, :1], y)), r"shape \(batch, classes\); found shape \(100, 1\)"),
        (batches(lambda x, y: (x, y[:50])), r"one entry per row, shape \(100,\); found shape"),
        (batches(lambda x, y: (x, y + 0.5)), "labels must be integers"),
        (batches(lambda x, y: (x, torch.full_like(y, -100))), "every label is ignored"),
        (batches(lambda x, y: x), "a batch must be .* or a dict with 'labels'; found Tensor"),
        (batches(lambda x, y: {"x": x, "label": y}), r"found \['x', 'label'\]"),
    ],
)
def test_what_cannot_be_calibrated_is_refused_in_one_line(loader, message):
    with pytest.raises(CalibrantError, match=message) as caught:
        calibrant.calibrate(nn.Identity(), loader)
    assert "\n" not in str(caught.value)


def test_a_model_that_is_not_a_module_is_refused():
    with pytest.raises(CalibrantError, match="model must be a Module; found"):
        calibrant.calibrate(np.exp, batches())


@pytest.mark.slow
def test_a_model_of_transformers():
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_labels=3
    )
    model = BertForSequenceClassification(config)
    tokens = torch.randint(0, 50, (240, 8))
    labels = tokens[:, 0] % 3
    loader = [
        {
            "input_ids": tokens[i : i + 40],
            "attention_mask": torch.ones(40, 8, dtype=torch.int64),
            "labels": labels[i : i + 40],
        }
        for i in range(0, 240, 40)
    ]
    calibrated = calibrant.calibrate(model, loader, "temperature").eval()
    with torch.no_grad():
        assert calibrated(**loader[0]).shape == (40, 3)
