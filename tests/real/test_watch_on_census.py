"""The census employment model, over the years after its reference year."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.monitoring import watch


@pytest.fixture
def employment(shared_data, tmp_path):
    """Reference and later years in one file, with the targets of the later ones."""
    name = str(shared_data / "groups" / "employment_MA_{}.parquet")
    reference, later, target = (
        pq.read_table(name.format(part)) for part in ("reference", "analysis", "analysis_target")
    )
    columns = ["year", "SEX", "predicted_probability", "employed"]
    later = later.select(["id", *columns[:3]]).join(target, keys="id", join_type="inner")
    both = pa.concat_tables(
        [table.select(columns).unify_dictionaries() for table in (reference, later)]
    )
    pq.write_table(both, tmp_path / "employment.parquet")
    return tmp_path / "employment.parquet"


def test_it_is_off_from_the_first_later_year_on(employment):
    found = watch(employment, time="year", label="employed", by=["SEX"])
    assert found.n == 68_785 + 208_892
    assert (found.alarm.period, found.diagnosis.since) == ("2016", "2016")
    assert next(iter(found.diagnosis.evidence)) == "class 1"
    gaps = {gap.what: gap for gap in found.diagnosis.off}
    assert set(gaps) == {"all samples", "SEX=1", "SEX=2"}
    assert gaps["all samples"].gap == pytest.approx(-0.0107, abs=1e-4)
