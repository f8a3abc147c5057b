"""A multi-label calibrator as a torch layer."""

from __future__ import annotations

from torch import Tensor

from calibrant._numerics.logspace import sigmoid
from calibrant.calibrators.base import State
from calibrant.calibrators.multilabel.data import no_and_yes, with_label_terms
from calibrant.calibrators.torch_layer import CalibratorModule


class MultiLabelModule(CalibratorModule):
    """A torch layer from logits (..., labels) to calibrated log-odds, which are logits too.

    Otherwise as :class:`CalibratorModule`. ``probs`` gives calibrated probabilities.
    """

    def forward(self, logits: Tensor) -> Tensor:
        """Calibrated log-odds; float16 and bfloat16 give float32."""
        return self._computed(self._log_odds, logits)

    def probs(self, logits: Tensor) -> Tensor:
        """Calibrated probabilities."""
        return self._computed(lambda *given: sigmoid(self._log_odds(*given)), logits)

    def _log_odds(self, logits: Tensor, state: State) -> Tensor:
        both = no_and_yes(logits)
        for part in self.parts:
            both = part(both)
        odds: Tensor = with_label_terms(both, state)
        return odds
