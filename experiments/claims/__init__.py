"""The papers' empirical claims, judged by the published results."""

from __future__ import annotations

from experiments.claims.claim import CHAROENPHAKDEE, KOMISARENKO, MUKHOTI, Claim
from experiments.claims.curves import CLAIMS as OF_CURVES
from experiments.claims.focal_map import CLAIMS as OF_THE_MAP
from experiments.claims.focal_temperature import CLAIMS as OF_TEMPERATURES
from experiments.claims.losses import CLAIMS as OF_LOSSES

CLAIMS: tuple[Claim, ...] = (*OF_LOSSES, *OF_CURVES, *OF_THE_MAP, *OF_TEMPERATURES)

__all__ = ["CHAROENPHAKDEE", "CLAIMS", "KOMISARENKO", "MUKHOTI", "Claim"]
