"""The scikit-learn classifier with a calibrator, and calibrators as scikit-learn sees them."""

from __future__ import annotations

import pickle
import re
import warnings

import numpy as np
import pytest
import scipy.sparse
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_set_params, parametrize_with_checks

import calibrant
from calibrant import AutoCalibration, FocalCalibration, TemperatureScaling
from calibrant.calibrators import CALIBRATORS, CalibrationWarning
from calibrant.integrations.scikit_learn import CalibratedClassifier
from tests.builders import REQUIRED, build, draw_samples
from tests.processes import run_python

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")


def problem(n=600, k=3, seed=0, **options):
    X, y = make_classification(  # noqa: N806
        n, 12, n_informative=6, n_classes=k, flip_y=0.1, random_state=seed, **options
    )
    return X[: n // 2], y[: n // 2], X[n // 2 :], y[n // 2 :]


# --- what scikit-learn checks --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@parametrize_with_checks([CalibratedClassifier(LogisticRegression())])
def test_scikit_learn_checks(estimator, check):
    """No check fails; those that need pandas or SciPy's array API switch are skipped there."""
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:divide by zero encountered in log:RuntimeWarning")  # GaussianNB
@parametrize_with_checks(
    [
        CalibratedClassifier(RidgeClassifier(), method="identity"),
        CalibratedClassifier(GaussianNB(), method=TemperatureScaling(criterion="brier"), cv=3),
    ]
)
def test_scikit_learn_checks_of_other_classifiers(estimator, check):
    check(estimator)


# --- scores --------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize(
    ("estimator", "scores"),
    [
        (LogisticRegression(), "decision_function"),
        (LinearSVC(), "decision_function"),
        (SVC(), "decision_function"),
        (GradientBoostingClassifier(n_estimators=5), "decision_function"),
        (make_pipeline(StandardScaler(), LogisticRegression()), "decision_function"),
        (GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2), "decision_function"),
        (OneVsRestClassifier(LinearSVC()), "decision_function"),
        (GaussianNB(), "predict_proba"),
        (KNeighborsClassifier(), "predict_proba"),
        (RandomForestClassifier(n_estimators=10, random_state=0), "predict_proba"),
        (DecisionTreeClassifier(random_state=0), "predict_proba"),
    ],
)
def test_any_classifier_gets_probabilities(estimator, scores, k):
    X, y, X_new, y_new = problem(k=k)  # noqa: N806
    classifier = CalibratedClassifier(estimator, cv=3).fit(X, y)
    assert classifier.scores_ == scores
    probs = classifier.predict_proba(X_new)
    assert probs.shape == (len(X_new), k)
    assert np.isfinite(probs).all()
    assert probs.sum(axis=1) == pytest.approx(np.ones(len(X_new)))
    assert np.exp(classifier.predict_log_proba(X_new)) == pytest.approx(probs)
    assert (classifier.predict(X_new) == probs.argmax(axis=1)).all()
    assert classifier.score(X_new, y_new) > 1.2 / k
    assert classifier.report_ is classifier.calibrator_.report_


def test_one_column_of_a_binary_score_stands_for_two():
    X, y, X_new, _ = problem(k=2)  # noqa: N806
    classifier = CalibratedClassifier(LinearSVC(), method="temperature").fit(X, y)
    margin = classifier.estimator_.decision_function(X_new)
    temperature = classifier.calibrator_.temperature_
    assert classifier.predict_proba(X_new)[:, 1] == pytest.approx(
        1 / (1 + np.exp(-margin / temperature))
    )


def test_identity_of_log_odds_is_the_classifier_itself():
    X, y, X_new, _ = problem()  # noqa: N806
    for estimator, scores in [
        (LogisticRegression(), "auto"),
        (LogisticRegression(), "predict_proba"),
        (GaussianNB(), "auto"),
    ]:
        classifier = CalibratedClassifier(estimator, method="identity", scores=scores).fit(X, y)
        own = clone(estimator).fit(X, y).predict_proba(X_new)
        assert classifier.predict_proba(X_new) == pytest.approx(own, abs=1e-6)


def test_scores_are_those_asked_for():
    X, y, _, _ = problem(k=2)  # noqa: N806
    for scores in ("decision_function", "predict_proba"):
        classifier = CalibratedClassifier(LogisticRegression(), scores=scores).fit(X, y)
        assert classifier.scores_ == scores
    with pytest.raises(ValueError, match="must have predict_proba; found LinearSVC without"):
        CalibratedClassifier(LinearSVC(), scores="predict_proba").fit(X, y)
    with pytest.raises(ValueError, match="must have decision_function; found GaussianNB without"):
        CalibratedClassifier(GaussianNB(), scores="decision_function").fit(X, y)
    with pytest.raises(ValueError, match="scores must be one of"):
        CalibratedClassifier(GaussianNB(), scores="logits").fit(X, y)


@pytest.mark.parametrize("k", [3, 4])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda e: e,
        lambda e: make_pipeline(StandardScaler(), e),
        lambda e: GridSearchCV(e, {"C": [1.0]}, cv=2),
        lambda e: GridSearchCV(SVC(), {"decision_function_shape": ["ovo"]}, cv=2),
    ],
)
def test_scores_of_pairs_are_never_taken_for_classes(wrap, k):
    """Three classes have three pairs, so that the number of columns looks right."""
    X, y, X_new, _ = problem(k=k)  # noqa: N806
    pairs = wrap(SVC(decision_function_shape="ovo"))
    for scores in ("auto", "decision_function"):
        with pytest.raises(ValueError, match="one for each pair of classes"):
            CalibratedClassifier(pairs, scores=scores).fit(X, y)
        with pytest.raises(ValueError, match="one for each pair of classes"):
            CalibratedClassifier(FrozenEstimator(pairs.fit(X, y)), scores=scores).fit(X, y)

    class WithProbabilities(ClassifierMixin, BaseEstimator):
        decision_function_shape = "ovo"

        def get_params(self, deep=True):
            return {"decision_function_shape": "ovo"}

        def fit(self, X, y):  # noqa: N803
            self.classes_, self.inner_ = np.unique(y), GaussianNB().fit(X, y)
            return self

        def decision_function(self, X):  # noqa: N803
            raise AssertionError("these are scores of pairs")

        def predict_proba(self, X):  # noqa: N803
            return self.inner_.predict_proba(X)

    frozen = FrozenEstimator(WithProbabilities().fit(X, y))
    classifier = CalibratedClassifier(frozen).fit(X, y)
    assert classifier.scores_ == "predict_proba"
    assert classifier.predict_proba(X_new).shape == (len(X_new), k)


def test_a_binary_score_of_one_pair_is_fine():
    X, y, *_ = problem(k=2)  # noqa: N806
    classifier = CalibratedClassifier(SVC(decision_function_shape="ovo")).fit(X, y)
    assert classifier.scores_ == "decision_function"


def test_scores_in_another_shape_are_refused():
    class Strange(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):  # noqa: N803
            self.classes_ = np.unique(y)
            return self

        def decision_function(self, X):  # noqa: N803
            return np.zeros((len(X), 7))

    X, y, *_ = problem()  # noqa: N806
    with pytest.raises(ValueError, match=r"each of the 3 classes; found shape \(100, 7\)"):
        CalibratedClassifier(Strange(), cv=3).fit(X, y)


def test_a_regressor_is_refused():
    X, y, *_ = problem()  # noqa: N806
    with pytest.raises(ValueError, match="found LinearRegression without"):
        CalibratedClassifier(LinearRegression()).fit(X, y)
    with pytest.raises(ValueError, match="must have decision_function or predict_proba"):
        CalibratedClassifier(FrozenEstimator(LinearRegression().fit(X, y))).fit(X, y)


# --- cross-fitting -------------------------------------------------------------------------------


def test_every_row_is_scored_by_a_classifier_that_has_not_seen_it():
    X, y, X_new, _ = problem()  # noqa: N806
    folds = StratifiedKFold(4, shuffle=True, random_state=1)
    classifier = CalibratedClassifier(GaussianNB(), method="temperature", cv=folds).fit(X, y)
    scores = np.empty((len(y), 3))
    for train, test in folds.split(X, y):
        scores[test] = GaussianNB().fit(X[train], y[train]).predict_proba(X[test])
    expected = TemperatureScaling().fit(probs=scores, labels=y)
    assert classifier.calibrator_.temperature_ == pytest.approx(expected.temperature_)
    own = GaussianNB().fit(X, y).predict_proba(X_new)
    assert classifier.predict_proba(X_new) == pytest.approx(expected.predict_proba(probs=own))


def test_a_model_that_knows_its_rows_by_heart_is_not_believed():
    """A tree is right on all of its own rows: fitted on those, T would go to 0."""
    X, y, X_new, y_new = problem(k=2)  # noqa: N806
    tree = DecisionTreeClassifier(random_state=0)
    honest = CalibratedClassifier(tree).fit(X, y)
    assert honest.report_.at_bound is None
    raw = clone(tree).fit(X, y).predict_proba(X_new)
    assert log_loss(y_new, honest.predict_proba(X_new)) < log_loss(y_new, raw) / 4


def test_calibration_helps_where_it_is_needed():
    X, y = load_digits(return_X_y=True)  # noqa: N806
    X, y, X_new, y_new = X[::2], y[::2], X[1::2], y[1::2]  # noqa: N806
    raw = GaussianNB().fit(X, y).predict_proba(X_new)
    classifier = CalibratedClassifier(GaussianNB()).fit(X, y)
    calibrated = classifier.predict_proba(X_new)
    assert log_loss(y_new, calibrated) < log_loss(y_new, raw) / 2
    assert calibrant.ece(calibrated, y_new) < calibrant.ece(raw, y_new) / 2
    assert (classifier.predict(X_new) == calibrated.argmax(axis=1)).all()
    keeping = CalibratedClassifier(GaussianNB(), method=AutoCalibration(keep_class=True)).fit(X, y)
    assert (keeping.predict(X_new) == raw.argmax(axis=1)).all()


@pytest.mark.slow
def test_a_balanced_model_of_rare_positives_gets_their_prevalence_back():
    X, y = make_classification(  # noqa: N806
        20_000, n_informative=5, weights=[0.94], flip_y=0.05, class_sep=0.6, random_state=0
    )
    fit, test = slice(0, 8000), slice(8000, None)
    rate = y[test].mean()
    assert 0.07 < rate < 0.09
    model = LogisticRegression(class_weight="balanced")
    raw = model.fit(X[fit], y[fit]).predict_proba(X[test])
    verdict = calibrant.evaluate(raw, y[test])
    assert verdict.side == "prevalence off"
    ours = CalibratedClassifier(model).fit(X[fit], y[fit]).predict_proba(X[test])
    theirs = CalibratedClassifierCV(model).fit(X[fit], y[fit]).predict_proba(X[test])
    assert raw[:, 1].mean() > 0.3
    assert ours[:, 1].mean() == pytest.approx(rate, abs=0.01)
    assert log_loss(y[test], ours) < 1.01 * log_loss(y[test], theirs)


def test_votes_of_a_support_vector_machine_are_worth_less_than_its_margins():
    X, y = load_digits(return_X_y=True)  # noqa: N806
    X, y, X_new, y_new = X[::2], y[::2], X[1::2], y[1::2]  # noqa: N806
    votes, margins = (
        CalibratedClassifier(estimator, method="temperature", cv=3).fit(X, y).predict_proba(X_new)
        for estimator in (SVC(), OneVsRestClassifier(SVC()))
    )
    assert log_loss(y_new, margins) < log_loss(y_new, votes) / 1.5


def test_the_temperature_is_that_of_scikit_learn():
    X, y, X_new, _ = problem()  # noqa: N806
    for estimator in (LogisticRegression(), make_pipeline(StandardScaler(), SVC())):
        ours = CalibratedClassifier(estimator, method="temperature", cv=3).fit(X, y)
        theirs = CalibratedClassifierCV(estimator, method="temperature", cv=3, ensemble=False).fit(
            X, y
        )
        assert ours.predict_proba(X_new) == pytest.approx(theirs.predict_proba(X_new), abs=1e-4)


def test_folds_can_be_given_in_many_ways():
    X, y, _, _ = problem()  # noqa: N806
    splitter = StratifiedKFold(5)
    ways = [5, None, splitter, list(splitter.split(X, y))]
    found = [
        CalibratedClassifier(GaussianNB(), method="temperature", cv=cv)
        .fit(X, y)
        .calibrator_.temperature_
        for cv in ways
    ]
    assert found == [found[0]] * 4


@pytest.mark.slow
def test_folds_in_two_processes():
    X, y, _, _ = problem()  # noqa: N806
    one, two = (
        CalibratedClassifier(GaussianNB(), method="temperature", n_jobs=n_jobs).fit(X, y)
        for n_jobs in (None, 2)
    )
    assert two.calibrator_.temperature_ == one.calibrator_.temperature_


def test_folds_that_leave_rows_out_are_refused():
    X, y, *_ = problem()  # noqa: N806
    with pytest.raises(ValueError, match=r"exactly one test part; found row \d+ in [02-9]"):
        CalibratedClassifier(GaussianNB(), cv=ShuffleSplit(3, random_state=0)).fit(X, y)
    order = np.argsort(y, kind="stable")
    with pytest.raises(ValueError, match=r"class \d is missing in one"):
        CalibratedClassifier(GaussianNB(), cv=KFold(3)).fit(X[order], y[order])
    with pytest.raises(ValueError, match="cv must be one of prefit"):
        CalibratedClassifier(GaussianNB(), cv="prefitted").fit(X, y)


def test_a_class_with_one_sample_is_refused():
    X, y, *_ = problem()  # noqa: N806
    y = y.copy()
    y[0] = 7
    with (
        pytest.warns(UserWarning, match="least populated class"),
        pytest.raises(ValueError, match="class 7 is missing"),
    ):
        CalibratedClassifier(GaussianNB()).fit(X, y)


def test_one_class_is_refused():
    X, y, *_ = problem()  # noqa: N806
    with pytest.raises(ValueError, match="found 1 class"):
        CalibratedClassifier(GaussianNB()).fit(X, np.zeros_like(y))


@pytest.mark.parametrize("freeze", [True, False])
def test_a_fitted_classifier_is_calibrated_on_all_rows(freeze):
    X, y, X_new, y_new = problem()  # noqa: N806
    fitted = GaussianNB().fit(X, y)
    before = pickle.dumps(fitted)
    classifier = (
        CalibratedClassifier(FrozenEstimator(fitted), method="temperature")
        if freeze
        else CalibratedClassifier(fitted, method="temperature", cv="prefit")
    ).fit(X_new, y_new)
    expected = TemperatureScaling().fit(probs=fitted.predict_proba(X_new), labels=y_new)
    assert classifier.calibrator_.temperature_ == expected.temperature_
    assert classifier.report_.n_samples == len(y_new)
    assert pickle.dumps(fitted) == before
    assert classifier.n_features_in_ == 12


def test_a_fitted_classifier_may_know_more_classes_but_not_fewer():
    X, y, *_ = problem()  # noqa: N806
    names = np.array(["c", "a", "b"])[y]
    fitted = GaussianNB().fit(X, names)
    some = names != "a"
    classifier = CalibratedClassifier(FrozenEstimator(fitted)).fit(X[some], names[some])
    assert classifier.classes_.tolist() == ["a", "b", "c"]
    assert classifier.predict_proba(X).shape == (len(X), 3)
    two = FrozenEstimator(GaussianNB().fit(X[some], names[some]))
    with pytest.raises(ValueError, match="found 'a', which is not one of its 2"):
        CalibratedClassifier(two).fit(X, names)


def test_a_classifier_that_is_not_fitted_cannot_be_prefit():
    X, y, *_ = problem()  # noqa: N806
    for classifier in (
        CalibratedClassifier(GaussianNB(), cv="prefit"),
        CalibratedClassifier(FrozenEstimator(GaussianNB())),
    ):
        with pytest.raises(NotFittedError):
            classifier.fit(X, y)


def test_a_fitted_estimator_is_trained_anew_unless_it_is_frozen():
    """Otherwise rows that it was trained on would be taken for new ones, without a word."""
    X, y, *_ = problem()  # noqa: N806
    tree = DecisionTreeClassifier(random_state=0).fit(X, y)
    assert CalibratedClassifier(tree).fit(X, y).report_.at_bound is None


# --- labels, weights, containers -----------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ["no", "yes", "maybe"],
        np.array(["no", "yes", "maybe"], dtype=object),
        [10, -3, 7],
        [0.5, 1.5, -2.0],
        [b"a", b"b", b"c"],
    ],
)
def test_labels_of_any_type(names):
    X, y, X_new, _ = problem()  # noqa: N806
    if isinstance(names[0], float):
        with pytest.raises(ValueError, match="continuous"):
            CalibratedClassifier(GaussianNB()).fit(X, np.asarray(names)[y])
        return
    if isinstance(names[0], bytes):
        with pytest.raises(TypeError, match="bytes"):
            CalibratedClassifier(GaussianNB()).fit(X, np.asarray(names)[y])
        return
    labels = np.asarray(names)[y]
    classifier = CalibratedClassifier(GaussianNB()).fit(X, labels)
    assert classifier.classes_.tolist() == sorted(np.asarray(names).tolist())
    assert set(classifier.predict(X_new)) <= set(classifier.classes_)
    numbered = CalibratedClassifier(GaussianNB()).fit(X, y)
    order = np.argsort(np.asarray(names))
    assert classifier.predict_proba(X_new) == pytest.approx(
        numbered.predict_proba(X_new)[:, order], abs=1e-9
    )


def test_bools_are_labels_too():
    X, y, X_new, _ = problem(k=2)  # noqa: N806
    classifier = CalibratedClassifier(LogisticRegression()).fit(X, y.astype(bool))
    assert classifier.classes_.dtype == bool
    assert classifier.predict(X_new).dtype == bool


def test_weights_by_class_name_reach_every_fold():
    X, y, *_ = problem(k=2)  # noqa: N806
    names = np.array(["rare", "usual"])[y]
    weighted = LogisticRegression(class_weight={"rare": 5.0, "usual": 1.0})
    classifier = CalibratedClassifier(weighted, method="identity").fit(X, names)
    assert classifier.estimator_.classes_.tolist() == ["rare", "usual"]


def test_weights_go_to_the_classifier_and_to_the_calibrator():
    X, y, X_new, _ = problem(k=2)  # noqa: N806
    weight = np.random.default_rng(0).integers(1, 4, size=len(y)).astype(float)
    folds = list(StratifiedKFold(3).split(X, y))
    classifier = CalibratedClassifier(LogisticRegression(), method="temperature", cv=folds).fit(
        X, y, weight
    )
    own = LogisticRegression().fit(X, y, sample_weight=weight)
    assert classifier.estimator_.coef_ == pytest.approx(own.coef_)
    scores = np.empty(len(y))
    for train, test in folds:
        fold = LogisticRegression().fit(X[train], y[train], sample_weight=weight[train])
        scores[test] = fold.decision_function(X[test])
    logits = np.stack([0 * scores, scores], axis=1)
    expected = TemperatureScaling().fit(logits, y, weight)
    assert classifier.calibrator_.temperature_ == pytest.approx(expected.temperature_)
    assert np.isfinite(classifier.predict_proba(X_new)).all()


def test_weights_that_the_classifier_cannot_take_are_said_to_be_half_used():
    X, y, *_ = problem()  # noqa: N806
    weight = np.ones(len(y))
    with pytest.warns(UserWarning, match="KNeighborsClassifier takes no sample_weight") as caught:
        CalibratedClassifier(KNeighborsClassifier()).fit(X, y, sample_weight=weight)
    assert caught[0].filename == __file__


def test_arguments_of_the_classifier_are_passed_on_and_divided():
    X, y, *_ = problem()  # noqa: N806
    seen = []

    class Listening(GaussianNB):
        def fit(self, X, y, colour=None, per_row=None):  # noqa: N803
            seen.append((colour, len(per_row), len(y)))
            return super().fit(X, y)

    CalibratedClassifier(Listening(), cv=3).fit(X, y, colour="red", per_row=np.arange(300))
    assert seen == [("red", 300, 300), *[("red", 200, 200)] * 3]


def test_metadata_routing():
    X, y, *_ = problem(k=2)  # noqa: N806
    weight, groups = np.linspace(0.5, 2.0, len(y)), np.arange(len(y)) % 6
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = Pipeline(
            [
                ("scale", StandardScaler().set_fit_request(sample_weight=False)),
                ("model", LogisticRegression().set_fit_request(sample_weight=True)),
            ]
        )
        classifier = CalibratedClassifier(pipeline, cv=GroupKFold(3))
        classifier.set_fit_request(sample_weight=True)
        classifier.fit(X, y, sample_weight=weight, groups=groups)
        scaled = StandardScaler().fit_transform(X)
        own = LogisticRegression().fit(scaled, y, sample_weight=weight)
        assert classifier.estimator_["model"].coef_ == pytest.approx(own.coef_)
        plain = CalibratedClassifier(LogisticRegression()).fit(X, y)
        assert plain.report_.n_samples == len(y)
        frozen = CalibratedClassifier(FrozenEstimator(own)).fit(scaled, y)
        assert frozen.report_.n_samples == len(y)


def test_sparse_features_and_lists():
    X, y, X_new, _ = problem()  # noqa: N806
    dense = CalibratedClassifier(LogisticRegression()).fit(X, y)
    sparse = CalibratedClassifier(LogisticRegression()).fit(scipy.sparse.csr_array(X), y)
    lists = CalibratedClassifier(LogisticRegression()).fit(X.tolist(), y.tolist())
    for other in (sparse, lists):
        assert other.predict_proba(X_new) == pytest.approx(dense.predict_proba(X_new), abs=1e-3)


def test_a_kernel_given_as_a_matrix_is_cut_both_ways():
    X, y, X_new, _ = problem(k=2)  # noqa: N806
    by_matrix = CalibratedClassifier(SVC(kernel="precomputed")).fit(X @ X.T, y)
    by_rows = CalibratedClassifier(SVC(kernel="linear")).fit(X, y)
    assert by_matrix.predict_proba(X_new @ X.T) == pytest.approx(
        by_rows.predict_proba(X_new), abs=1e-6
    )


# --- one of scikit-learn's own -------------------------------------------------------------------


def test_parameters_reach_inside():
    classifier = CalibratedClassifier(LogisticRegression(C=3.0), method=FocalCalibration(gamma=1.0))
    params = classifier.get_params()
    assert params["estimator__C"] == 3.0
    assert params["method__gamma"] == 1.0
    classifier.set_params(method__gamma=2.0, estimator__C=1.0)
    assert classifier.method.gamma == 2.0
    copied = clone(classifier)
    assert copied.method is not classifier.method
    assert copied.get_params()["method__gamma"] == 2.0


def test_a_calibrator_given_as_method_is_not_touched():
    X, y, *_ = problem()  # noqa: N806
    method = TemperatureScaling(criterion="brier")
    classifier = CalibratedClassifier(LogisticRegression(), method=method).fit(X, y)
    assert not hasattr(method, "state_")
    assert classifier.calibrator_ is not method
    assert classifier.report_.criterion == "brier"


def test_unknown_methods_are_refused():
    X, y, *_ = problem()  # noqa: N806
    with pytest.raises(ValueError, match=r"method must be one of .*Did you mean 'temperature'"):
        CalibratedClassifier(GaussianNB(), method="temprature").fit(X, y)


def test_a_method_that_needs_more_than_its_name_says_so():
    X, y, *_ = problem()  # noqa: N806
    message = r"focal needs gamma; .*: method=FocalCalibration\(gamma=\.\.\.\)"
    with pytest.raises(ValueError, match=message):
        CalibratedClassifier(GaussianNB(), method="focal").fit(X, y)


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
@pytest.mark.parametrize("k", [2, 3])
def test_every_method(name, k):
    X, y, X_new, _ = problem(k=k)  # noqa: N806
    method = build(name) if name in REQUIRED else name
    classifier = CalibratedClassifier(LogisticRegression(), method=method, cv=3).fit(X, y)
    probs = classifier.predict_proba(X_new)
    assert probs.shape == (len(X_new), k)
    assert probs.sum(axis=1) == pytest.approx(np.ones(len(X_new)))
    assert type(classifier.calibrator_) is CALIBRATORS[name]


def test_it_works_inside_a_search_and_inside_a_pipeline():
    X, y, X_new, y_new = problem()  # noqa: N806
    search = GridSearchCV(
        make_pipeline(StandardScaler(), CalibratedClassifier(LogisticRegression(), cv=3)),
        {"calibratedclassifier__method": ["identity", "temperature"]},
        scoring="neg_log_loss",
        cv=2,
    ).fit(X, y)
    assert search.score(X_new, y_new) > -1.1
    scores = cross_val_score(CalibratedClassifier(GaussianNB(), cv=3), X, y, cv=3)
    assert (scores > 0.4).all()


def test_pickles_reprs_and_tags():
    X, y, X_new, _ = problem()  # noqa: N806
    classifier = CalibratedClassifier(LinearSVC(), method=TemperatureScaling()).fit(X, y)
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(X_new), classifier.predict_proba(X_new))
    assert re.match(r"CalibratedClassifier\(estimator=LinearSVC\(\),", repr(classifier))
    assert "LinearSVC" in classifier._repr_html_()
    assert is_classifier(classifier)
    tags = classifier.__sklearn_tags__()
    assert tags.input_tags.sparse
    assert CalibratedClassifier(SVC(kernel="precomputed")).__sklearn_tags__().input_tags.pairwise


def test_a_second_fit_forgets_the_first():
    X, y, *_ = problem()  # noqa: N806
    classifier = CalibratedClassifier(GaussianNB()).fit(X, y)
    classifier.fit(X[:, :5], np.array(["a", "b", "c"])[y])
    assert classifier.n_features_in_ == 5
    assert classifier.classes_.tolist() == ["a", "b", "c"]


def test_nothing_works_before_the_fit():
    for method in ("predict", "predict_proba", "predict_log_proba"):
        with pytest.raises(NotFittedError, match="CalibratedClassifier instance is not fitted"):
            getattr(CalibratedClassifier(GaussianNB()), method)(np.zeros((2, 2)))
    assert not hasattr(CalibratedClassifier(GaussianNB()), "report_")


def test_warnings_of_the_calibrator_point_at_the_caller():
    X, y, *_ = problem(n=120)  # noqa: N806
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier = CalibratedClassifier(GaussianNB()).fit(X, y)
    assert [str(w.message) for w in caught] == [
        f"auto: {message}" for message in classifier.report_.warnings
    ]
    assert caught
    assert {w.category for w in caught} == {CalibrationWarning}
    assert {w.filename for w in caught} == {__file__}


def test_importing_calibrant_does_not_import_scikit_learn():
    code = "import calibrant, sys; assert 'sklearn' not in sys.modules"
    run_python("-c", code, check=True)


# --- calibrators as scikit-learn sees them -------------------------------------------------------


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_calibrators_can_be_cloned(name):
    fitted = build(name).fit(*draw_samples())
    copied = clone(fitted)
    assert type(copied) is type(fitted)
    assert copied.get_params() == fitted.get_params()
    assert not hasattr(copied, "state_")
    assert clone([fitted, copied])[0].get_params() == fitted.get_params()


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_parameters_are_set_as_scikit_learn_sets_them(name):
    check_set_params(name, build(name))


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_no_attribute_ends_in_an_underscore_before_the_fit(name):
    assert not [key for key in vars(build(name)) if key.endswith("_")]
    fitted = build(name).fit(*draw_samples())
    new = set(vars(fitted)) - set(vars(build(name)))
    assert new
    assert all(key.endswith("_") for key in new)


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_fitting_twice_gives_the_same(name):
    logits, labels = draw_samples()
    once = build(name).fit(logits, labels).predict_proba(logits)
    twice = build(name).fit(logits, labels).fit(logits, labels).predict_proba(logits)
    np.testing.assert_array_equal(once, twice)


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_the_order_of_rows_hardly_matters(name):
    logits, labels = draw_samples()
    order = np.random.default_rng(0).permutation(len(labels))
    one = build(name).fit(logits, labels)
    other = build(name).fit(logits[order], labels[order])
    assert one.predict_proba(logits) == pytest.approx(other.predict_proba(logits), abs=1e-6)


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_predictions_do_not_depend_on_the_batch(name):
    logits, labels = draw_samples()
    fitted = build(name).fit(logits, labels)
    halves = [fitted.predict_proba(half) for half in (logits[:7], logits[7:])]
    np.testing.assert_allclose(np.concatenate(halves), fitted.predict_proba(logits), rtol=1e-13)


@pytest.mark.parametrize(  # it compiles anew what a method reads
    "name",
    [
        name if name in ("isotonic", "temperature") else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(CALIBRATORS)
    ],
)
def test_reading_only_memory_is_enough(name):
    logits, labels = draw_samples()
    logits.setflags(write=False)
    labels.setflags(write=False)
    assert np.isfinite(build(name).fit(logits, labels).predict_proba(logits)).all()


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_is_fitted_is_known(name):
    from sklearn.utils.validation import check_is_fitted

    with pytest.raises(NotFittedError):
        check_is_fitted(build(name))
    check_is_fitted(build(name).fit(*draw_samples()))


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_layouts_in_memory_do_not_matter(name):
    logits, labels = draw_samples()
    expected = build(name).fit(logits, labels).predict_proba(logits)
    for given in (np.asfortranarray(logits), np.repeat(logits, 2, axis=0)[::2], logits.tolist()):
        found = build(name).fit(given, labels).predict_proba(given)
        assert found == pytest.approx(expected, abs=1e-12)
