"""Exported files: the same probabilities, without calibrant."""

from __future__ import annotations

import ast
import functools
import itertools
import json
import logging
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, strategies as st

import calibrant
from calibrant import FocalCalibration, TemperatureScaling
from calibrant.calibrators import CALIBRATORS, NotFittedError
from calibrant.calibrators.export import export, onnx_model
from calibrant.calibrators.export.numpy_source import TEMPLATES, source
from calibrant.calibrators.parts import InParts
from tests.builders import build, draw_samples
from tests.processes import run_python
from tests.reference import focal_mpmath

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")

METHODS = sorted(CALIBRATORS)
CLASSES = (2, 3, 10, 200, 1000)
DTYPES = ("float32", "float64")

every_method = pytest.mark.parametrize("name", METHODS)


def taking_turns(first=0):
    """One case for each method, such that every size and type has its turn among them."""
    return [
        (name, CLASSES[place % 5], DTYPES[place // 5 % 2])
        for place, name in enumerate(METHODS, first)
    ]


def cases(turns, fast):
    """Every run tests the methods ``fast``; the others are slow, as translating takes seconds."""
    return pytest.mark.parametrize(
        ("name", "k", "dtype"),
        [
            pytest.param(*turn, marks=[] if turn[0] in fast else [pytest.mark.slow])
            for turn in turns
        ],
    )


@functools.cache
def fitted(name, k=3, size=1.0):
    """Fitted on logits of this size: where it is small, the map is steep."""
    calibrator = build(name)
    logits, labels = draw_samples(600, k)
    if "matrix" not in calibrator.STATE or k <= 10:
        return calibrator.fit(size * logits, labels)
    # A fit of so many numbers takes long, and what they are does not matter here.
    calibrator.fit(*draw_samples(600))
    rng = np.random.default_rng(0)
    calibrator.n_classes_ = k
    calibrator.state_["temperature"] = size
    calibrator.state_["matrix"] = 0.02 / size * rng.normal(size=(k, k))
    calibrator.state_["bias"] = rng.normal(size=k)
    return calibrator


def rows(k, dtype="float64"):
    """Ordinary, small, saturated, tied, masked and large rows, and close races among large ones."""
    rng = np.random.default_rng(1)
    ordinary = 3.0 * rng.normal(size=(40, k))
    saturated = 60.0 * rng.normal(size=(10, k))
    tied = np.zeros((4, k))
    tied[1, :2] = 4.0
    tied[2, 1:] = 2.0
    tied[3, 0] = 1e-7
    masked = np.where(rng.random((20, k)) < 0.5, -np.inf, 3.0 * rng.normal(size=(20, k)))
    masked[:, 1] = rng.normal(size=20)
    alone = np.where(np.arange(k) == k - 1, 5.0, -np.inf)[np.newaxis]
    large = 1e4 * rng.normal(size=(10, k))
    races = 1e4 * rng.normal(size=(20, k))
    races[:, :2] = 4e4 + rng.normal(size=(20, 2))
    small = 0.02 * rng.normal(size=(20, k))
    parts = [ordinary, small, saturated, tied, masked, alone, large, races, 1e26 * large]
    return np.concatenate(parts).astype(dtype)


def function_of(text):
    """``predict_proba`` of a Python file, as something that imports it has it."""
    names: dict = {}
    exec(compile(text, "exported.py", "exec"), names)
    return names["predict_proba"]


def assert_knows_nothing_of_this_machine(file):
    content = file.read_bytes()
    for folder in (Path(__file__).resolve().parents[2], Path(sys.prefix), Path.home()):
        assert str(folder).encode() not in content


def assert_agrees(found, calibrator, logits):
    expected = calibrator.predict_proba(logits=logits)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert (found[logits == -np.inf] == 0.0).all()


# --- NumPy ---------------------------------------------------------------------------------------


def test_every_method_has_a_template():
    whole = {name for name, method in CALIBRATORS.items() if not issubclass(method, InParts)}
    assert set(TEMPLATES) == whole | {"multi-label", "grouped"}


# Many classes take long to fit, and a file of a million numbers to read.
every_width = pytest.mark.parametrize(
    ("k", "size"),
    [
        *((2, 0.01), (3, 1.0), (10, 0.01)),
        pytest.param(200, 1.0, marks=pytest.mark.slow),
        pytest.param(1000, 0.01, marks=pytest.mark.slow),
    ],
)


@every_method
@every_width
def test_the_python_file_agrees(name, k, size):
    calibrator = fitted(name, k, size)
    predict_proba = function_of(source(calibrator))
    for dtype in DTYPES:
        assert_agrees(predict_proba(rows(k, dtype)), calibrator, rows(k, dtype))


def test_the_python_file_says_what_to_pass_for_probabilities():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(3, 0.1), size=500)
    probs[::7] = [1.0, 0.0, 0.0]
    classes = calibrant.VectorScaling().fit(probs=probs, labels=rng.integers(0, 3, size=500))
    labels = calibrant.MultiLabelCalibration().fit(probs=probs, labels=rng.random((500, 3)) < probs)
    for calibrator in (classes, labels):
        text = source(calibrator)
        (line,) = re.findall(r"It was fitted on probabilities p: pass (.*)\.\n", text)
        assert len(line) <= 70
        logits = eval(line, {"np": np, "p": probs})
        found, expected = function_of(text)(logits), calibrator.predict_proba(probs=probs)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert "fitted on probabilities" not in source(fitted("vector"))


@every_method
def test_the_python_file_is_short_and_readable(name):
    text = source(fitted(name))
    assert f"\n{name}: " in text
    assert f"written by calibrant {calibrant.__version__}." in text
    assert max(map(len, text.splitlines())) <= 100
    module = ast.parse(text)
    imported = [node for node in module.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {getattr(node, "module", None) or node.names[0].name for node in imported} == {
        "numpy",
        "numpy.typing",
    }
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            assert len(ast.unparse(node).splitlines()) <= 30
            assert ast.get_docstring(node)


@pytest.mark.parametrize(
    ("name", "k"), [*((name, 10) for name in METHODS), ("vector", 200), ("isotonic", 200)]
)
def test_the_numbers_of_the_python_file_are_exact(name, k):
    calibrator = fitted(name, k)
    names: dict = {}
    exec(source(calibrator), names)
    assert names["N_CLASSES"] == k
    for key, value in calibrator.state_.items():
        np.testing.assert_array_equal(names[key.upper()], value, strict=True)


def test_the_python_files_run_where_there_is_only_numpy(tmp_path):
    for name in METHODS:
        export(fitted(name), tmp_path / f"{name.replace('-', '_')}.py", format="numpy")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
for package in ("calibrant", "torch", "scipy", "numba", "array_api_compat"):
    sys.modules[package] = None
import importlib, numpy
for name in {[name.replace("-", "_") for name in METHODS]!r}:
    probs = importlib.import_module(name).predict_proba([[1.0, 2.0, -numpy.inf], [1e4, 0.0, 0.0]])
    assert abs(probs.sum(axis=1) - 1.0).max() < 1e-12, probs
"""
    done = run_python("-I", "-W", "error", "-c", program)
    assert (done.returncode, done.stderr) == (0, "")


@every_method
def test_the_python_file_takes_any_shape_and_type(name):
    predict_proba, logits = function_of(source(fitted(name))), rows(3)[:24]
    flat = predict_proba(logits)
    np.testing.assert_array_equal(
        predict_proba(logits.reshape(2, 3, 4, 3)), flat.reshape(2, 3, 4, 3)
    )
    np.testing.assert_array_equal(predict_proba(logits[0].tolist()), flat[0])
    assert predict_proba(logits[:0]).shape == (0, 3)
    assert predict_proba(logits.astype("float16")).dtype == np.float32
    assert predict_proba(np.ones((1, 3), dtype="int8")).dtype == np.float64
    assert predict_proba(logits.astype(np.longdouble)).dtype == np.float64
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = predict_proba(np.array([[1.7e308, -1.7e308, 0.0]]))
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([[0.0, float("nan"), 0.0]], "NaN"),
        ([[0.0, float("inf"), 0.0]], r"\+inf"),
        ([[-float("inf")] * 3], "a row of only -inf"),
        ([[0.0, 1.0]], r"expected 3 classes on the last axis; found shape \(1, 2\)"),
        (0.0, r"found shape \(\)"),
    ],
)
def test_the_python_file_refuses_what_it_cannot_use(logits, message):
    for name in METHODS:
        with pytest.raises(ValueError, match=message):
            function_of(source(fitted(name)))(logits)


gammas = st.one_of(st.floats(-1.0, 20.0), st.sampled_from([-1.0, -1.0 + 1e-9, 0.0, 1e-9, 100.0]))


@given(
    gamma=gammas,
    logits=st.lists(
        st.one_of(st.floats(-40.0, 40.0), st.sampled_from([-1e4, 1e4, 0.0])),
        min_size=3,
        max_size=3,
    ),
)
def test_the_focal_file_against_high_precision(gamma, logits):
    calibrator = FocalCalibration(gamma=gamma).fit(*draw_samples(20))
    found = function_of(source(calibrator))(logits)
    exact = focal_mpmath.stable(focal_mpmath.focal_log_probs, logits, gamma)
    np.testing.assert_allclose(found, np.exp(np.array(exact, dtype=float)), rtol=1e-9, atol=1e-12)


def test_words_in_a_calibrator_file_never_become_code(tmp_path):
    fitted("temperature").save(tmp_path / "cal.json")
    content = json.loads((tmp_path / "cal.json").read_text())
    content["report"]["criterion"] = '"""\nimport os\n"""'
    content["report"]["warnings"] = ['"""\nimport os\n"""']
    (tmp_path / "cal.json").write_text(json.dumps(content))
    assert "import os" not in source(calibrant.load(tmp_path / "cal.json"))


# --- torch ---------------------------------------------------------------------------------------


@every_method
@every_width
def test_the_layer_agrees(name, k, size):
    calibrator, logits = fitted(name, k, size), rows(k, "float32")
    layer, tensor = calibrator.as_module(), torch.from_numpy(logits)
    assert_agrees(layer(tensor).exp().numpy(), calibrator, logits)
    assert_agrees(layer.probs(tensor).numpy(), calibrator, logits)
    assert_agrees(calibrator.predict_proba(logits=tensor).numpy(), calibrator, logits)


@pytest.mark.parametrize("gamma", [-1.0, 10.0, 20.0, 1e4])
@pytest.mark.parametrize("k", CLASSES)
def test_the_focal_layer_and_file_agree_for_every_gamma(gamma, k):
    calibrator, logits = (
        FocalCalibration(gamma=gamma).fit(*draw_samples(600, k)),
        rows(k, "float32"),
    )
    layer = calibrator.as_module()
    assert_agrees(layer.probs(torch.from_numpy(logits)).numpy(), calibrator, logits)
    assert_agrees(function_of(source(calibrator))(logits), calibrator, logits)


@pytest.mark.slow
@cases(taking_turns(6), fast=["focal-temperature", "isotonic"])
def test_the_torch_program_agrees(name, k, dtype, tmp_path, capfd):
    calibrator, logits = fitted(name, k, 0.01), rows(k, dtype)
    export(calibrator, tmp_path / "cal.pt2", dtype=dtype)
    assert capfd.readouterr() == ("", "")
    assert_knows_nothing_of_this_machine(tmp_path / "cal.pt2")
    program = torch.export.load(tmp_path / "cal.pt2").module()
    for n in (0, 1, len(logits)):
        found = program(torch.from_numpy(logits[:n])).numpy()
        assert_agrees(found, calibrator, logits[:n])


@pytest.mark.slow
def test_the_torch_program_runs_where_there_is_only_torch(tmp_path):
    export(fitted("focal"), tmp_path / "cal.pt2")
    program = f"""
import sys
for package in ("calibrant", "scipy", "numba", "array_api_compat"):
    sys.modules[package] = None
import torch
about = {{"calibrant.json": ""}}
loaded = torch.export.load({str(tmp_path / "cal.pt2")!r}, extra_files=about)
print(about["calibrant.json"])
print(loaded.module()(torch.tensor([[1.0, 2.0, -float("inf")]])).sum().item())
"""
    done = run_python("-I", "-W", "error", "-c", program)
    assert (done.returncode, done.stderr) == (0, "")
    about, total = done.stdout.splitlines()
    assert json.loads(about) == {
        "calibrant.version": calibrant.__version__,
        "calibrant.method": "focal",
        "calibrant.n_classes": "3",
        "calibrant.created": fitted("focal").origin_.created,
    }
    assert float(total) == pytest.approx(1.0, abs=1e-6)


# --- ONNX ----------------------------------------------------------------------------------------


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@cases(taking_turns(), fast=[])  # ``cli/test_export.py`` has one in every run
def test_the_onnx_model_agrees(name, k, dtype, tmp_path, capfd):
    calibrator, logits = fitted(name, k, 0.01), rows(k, dtype)
    export(calibrator, tmp_path / "cal.onnx", dtype=dtype)
    assert capfd.readouterr() == ("", "")
    assert [file.name for file in tmp_path.iterdir()] == ["cal.onnx"]
    assert_knows_nothing_of_this_machine(tmp_path / "cal.onnx")
    model = session(tmp_path / "cal.onnx")
    for n in (0, 1, len(logits)):
        (found,) = model.run(["probs"], {"logits": logits[:n]})
        assert_agrees(found, calibrator, logits[:n])
    assert [(port.name, port.shape) for port in (*model.get_inputs(), *model.get_outputs())] == [
        ("logits", ["batch", k]),
        ("probs", ["batch", k]),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vector", "isotonic"])
def test_a_single_model_computes_in_double(name, tmp_path):
    calibrator, logits = fitted(name, 10, 0.01), rows(10, "float32")
    export(calibrator, tmp_path / "cal.onnx", dtype="float32")
    (found,) = session(tmp_path / "cal.onnx").run(["probs"], {"logits": logits})
    exact = calibrator.predict_proba(logits.astype("float64"))
    np.testing.assert_allclose(found, exact, rtol=0, atol=2.0**-24)


@pytest.mark.slow
def test_a_model_whose_temperature_single_precision_cannot_hold(tmp_path):
    logits, labels = draw_samples(600)
    calibrator = TemperatureScaling().fit(1e-60 * logits, labels)
    export(calibrator, tmp_path / "cal.onnx", dtype="float32")
    (found,) = session(tmp_path / "cal.onnx").run(["probs"], {"logits": rows(3, "float32")})
    assert_agrees(found, calibrator, rows(3, "float32"))


@pytest.fixture(scope="module")
def double_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "cal.onnx"
    export(fitted("temperature"), path, dtype="float64")
    return onnx.load(path)


@pytest.mark.slow
def test_the_onnx_model_is_well_formed(double_model):
    onnx.checker.check_model(double_model, full_check=True)
    assert {entry.key: entry.value for entry in double_model.metadata_props} == {
        "calibrant.version": calibrant.__version__,
        "calibrant.method": "temperature",
        "calibrant.n_classes": "3",
        "calibrant.created": fitted("temperature").origin_.created,
    }
    assert double_model.producer_name == "calibrant"


@pytest.mark.slow
def test_a_double_model_has_no_single_numbers(double_model):
    kinds = {tensor.data_type for tensor in double_model.graph.initializer}
    assert onnx.TensorProto.DOUBLE in kinds
    assert onnx.TensorProto.FLOAT not in kinds
    assert not [node for node in double_model.graph.node if node.op_type.startswith("Cast")]
    numbers = [onnx.numpy_helper.to_array(tensor) for tensor in double_model.graph.initializer]
    assert any((array == fitted("temperature").temperature_).all() for array in numbers)


@pytest.mark.slow
def test_a_wrong_onnx_model_is_refused(double_model):
    other = fitted("temperature").with_state({"temperature": 9.0}, 3)
    with pytest.raises(ArithmeticError, match="of temperature is off by 0"):
        onnx_model._check(double_model.SerializeToString(), other, "float64")


@pytest.mark.slow
def test_a_wrong_onnx_model_is_not_written(tmp_path, monkeypatch):
    # What torch.onnx makes by itself gives NaN for rows with a single possible class.
    monkeypatch.setattr(onnx_model, "_translations", dict)
    with pytest.raises(ArithmeticError, match="of vector is off by nan"):
        export(fitted("vector"), tmp_path / "cal.onnx")
    assert list(tmp_path.iterdir()) == []


def test_the_levels_of_other_loggers_are_given_back():
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    with pytest.raises(KeyError), onnx_model._quiet():
        raise KeyError
    assert logger.level == before


# --- what all formats share ----------------------------------------------------------------------


def test_the_ending_tells_the_format(tmp_path):
    export(fitted("temperature"), tmp_path / "cal.PY")
    assert "predict_proba" in (tmp_path / "cal.PY").read_text()
    with pytest.raises(
        ValueError, match=r"expected the extension .py, .onnx, .pt2; found '.txt'. Pass format="
    ):
        export(fitted("temperature"), tmp_path / "cal.txt")
    with pytest.raises(ValueError, match="found 'none'"):
        export(fitted("temperature"), tmp_path / "cal")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "numpi"}, "Did you mean 'numpy'?"),
        ({"format": "numpy", "dtype": "float32"}, "takes logits of any dtype"),
        ({"format": "torch", "dtype": "float16"}, "dtype must be one of float32, float64"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message, tmp_path):
    (tmp_path / "cal").write_text("before")
    with pytest.raises(ValueError, match=re.escape(message)):
        export(fitted("temperature"), tmp_path / "cal", **options)
    assert (tmp_path / "cal").read_text() == "before"


@pytest.mark.parametrize(
    ("format_", "name", "message"),
    [
        ("onnx", "cal.py", "the format onnx is written to .onnx files; found 'cal.py'."),
        ("numpy", "cal.PT2", "the format numpy is written to .py files; found 'cal.PT2'."),
    ],
)
def test_an_ending_that_contradicts_the_format_is_refused(format_, name, message, tmp_path):
    with pytest.raises(ValueError, match=re.escape(message)):
        export(fitted("temperature"), tmp_path / name, format=format_)
    assert list(tmp_path.iterdir()) == []


def test_an_ending_of_no_format_is_anybodys(tmp_path):
    export(fitted("temperature"), tmp_path / "cal.v2", format="numpy")
    assert "predict_proba" in (tmp_path / "cal.v2").read_text()


def test_needs_a_fitted_calibrator(tmp_path):
    with pytest.raises(NotFittedError, match="has not been fitted"):
        export(TemperatureScaling(), tmp_path / "cal.py")


@pytest.mark.parametrize(
    ("format_", "package"), [("onnx", "onnxruntime"), ("onnx", "torch"), ("torch", "torch")]
)
def test_a_missing_package_is_named(format_, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"found no {package}. Run: pip install 'calibrant\[{format_}\]'"
    with pytest.raises(ImportError, match=message):
        export(fitted("temperature"), tmp_path / "cal", format=format_)
    assert list(tmp_path.iterdir()) == []


def test_the_turns_cover_every_size_and_type():
    turns = taking_turns()
    assert {name for name, _, _ in turns} == set(CALIBRATORS)
    if len(METHODS) >= 10:
        assert {turn[1:] for turn in turns} == set(itertools.product(CLASSES, DTYPES))
