"""Groups and later years of a census model, grouped calibration, and the level of slice searches.

The model predicts employment in Massachusetts. It is calibrated on the reference year, 2015, and
measured on 2016 to 2018. The groupings were fixed before the later years were looked at.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]

import calibrant
from calibrant.metrics import GroupedEvaluation, paired_difference, worst_slices

Floats = npt.NDArray[np.float64]

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "groups"
GROUPINGS = {
    "sex": ["sex"],
    "race": ["race"],
    "disability": ["disability"],
    "age": ["age"],
    "age, sex, disability": ["age", "sex", "disability"],
}
ENOUGH = 500
"""Samples from which on a group counts for the worst group."""
MEASURES = ("prevalence_gap", "positive_ece", "calibration_slope")
RESAMPLES = 200


def census() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The reference year, and the later years with their targets."""
    reference = pd.read_parquet(DATA / "employment_MA_reference.parquet")
    later = pd.read_parquet(DATA / "employment_MA_analysis.parquet")
    target = pd.read_parquet(DATA / "employment_MA_analysis_target.parquet")
    return _named(reference), _named(later.merge(target, on="id"))


def _named(table: pd.DataFrame) -> pd.DataFrame:
    ages = pd.cut(table.AGEP, [-1, 17, 24, 44, 64, 200], labels=["0", "18", "25", "45", "65"])
    return table.assign(
        age=ages.astype(str) + "+",
        sex=table.SEX.map({"1": "m", "2": "f"}).astype(str),
        disability=table.DIS.map({"1": "yes", "2": "no"}).astype(str),
        race=table.RAC1P.astype(str),
        schooling=table.SCHL.astype(str),
        citizenship=table.CIT.astype(str),
        marriage=table.MAR.astype(str),
    )


def by_group(table: pd.DataFrame, columns: list[str]) -> GroupedEvaluation:
    """The groups of the model as it is."""
    found = calibrant.evaluate(
        table.predicted_probability.to_numpy(),
        table.employed.to_numpy(),
        groups=table[columns],
        metrics=MEASURES,
        n_resamples=RESAMPLES,
    ).by_group
    assert found is not None
    return found


def worst_gap(p: Floats, table: pd.DataFrame, columns: list[str]) -> float:
    """Largest distance of a group's mean probability from its rate."""
    gaps = table.assign(gap=p - table.employed).groupby(columns).gap.agg(["mean", "size"])
    return float(gaps["mean"][gaps["size"] >= ENOUGH].abs().max())


def calibrated(reference: pd.DataFrame, later: pd.DataFrame) -> None:
    """Print the NLL and the worst group of later years, before and after."""
    p, labels = reference.predicted_probability.to_numpy(), reference.employed.to_numpy()
    given = later.predicted_probability.to_numpy()
    auto = calibrant.AutoCalibration().fit(probs=p, labels=labels)
    alone = auto.predict_proba(probs=given)
    print(f"\nauto selects {auto.chosen_}")
    head = f"{'groups':<22}{'year':<6}{'NLL':>9}{'auto':>9}{'grouped':>9}"
    print(f"{head}{'grouped - auto':>28}{'worst gap':>11}{'auto':>8}{'grouped':>9}")
    for name, columns in GROUPINGS.items():
        grouped = calibrant.GroupedCalibration().fit(
            probs=p, labels=labels, groups=reference[columns]
        )
        then = grouped.predict_proba(probs=given, groups=later[columns])
        for year in sorted(later.year.unique()):
            rows = (later.year == year).to_numpy()
            table = later[rows]
            kinds = [each[rows] for each in (given, alone, then)]
            nll = [calibrant.nll(each, table.employed.to_numpy()) for each in kinds]
            gain = paired_difference(
                kinds[2],
                kinds[1],
                table.employed.to_numpy(),
                metrics=["nll"],
                n_resamples=RESAMPLES,
            )["nll"]
            shown = f"{gain.difference:+.5f} ({gain.low:+.5f} to {gain.high:+.5f})"
            worst = [worst_gap(each, table, columns) for each in kinds]
            print(
                f"{name:<22}{year:<6}"
                + "".join(f"{each:>9.4f}" for each in nll)
                + f"{shown:>36}"
                + "".join(f"{each:>9.2%}" for each in worst)
            )


def null_p_values(runs: int) -> Floats:
    """P-values of the worst slice of calibrated models: 300 samples, three columns."""
    found = []
    for seed in range(runs):
        rng = np.random.default_rng(10_000 + seed)
        columns = {"a": rng.integers(0, 3, 300), "b": rng.integers(0, 4, 300)}
        columns["c"] = rng.integers(0, 2, 300)
        p = rng.beta(0.7, 0.7, 300)
        labels = (rng.random(300) < p).astype(int)
        search = worst_slices(p, labels, groups=columns, n_simulations=200, random_state=seed)
        found.append(search.worst.p_value)
    return np.array(found)


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--null", type=int, metavar="RUNS", help="slice searches without effect")
    arguments = parser.parse_args(argv)
    if arguments.null:
        p_values = null_p_values(arguments.null)
        for level in (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9):
            print(f"p-value up to {level:<5}{(p_values <= level).mean():>7.1%} of searches")
        return
    warnings.simplefilter("ignore", calibrant.calibrators.CalibrationWarning)
    reference, later = census()
    both = pd.concat([reference, later])
    for column in ("sex", "disability", "age"):
        print(f"\n{by_group(both, ['year', column])}")
    found = worst_slices(
        later.predicted_probability.to_numpy(),
        later.employed.to_numpy(),
        groups=later[["year", "age", "sex", "disability", "race", "schooling", "marriage"]],
    )
    print(f"\n{found}")
    calibrated(reference, later)


if __name__ == "__main__":
    main()
