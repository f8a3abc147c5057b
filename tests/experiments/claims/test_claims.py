"""All claims."""

from __future__ import annotations

from experiments.claims import CLAIMS
from tests.experiments.claims.made_values import JUDGES


def test_every_verdict_says_its_rule():
    assert all(claim.rule or claim.shared for claim in CLAIMS)
    assert len(JUDGES) == len(CLAIMS)
