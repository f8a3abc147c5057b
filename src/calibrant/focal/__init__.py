"""The mathematics of the focal loss: gradients, the calibration map and its inverse, theory.

Everything is built on one scalar function, :func:`phi`. All functions take NumPy arrays or PyTorch
tensors (and are differentiable), classes on the last axis.
"""

from calibrant.focal.calibration_map import focal_log_probs, focal_map
from calibrant.focal.confidence import (
    confidence_bias,
    confidence_thresholds,
    gamma_for_threshold,
)
from calibrant.focal.inverse import inverse_focal_map
from calibrant.focal.loss import focal_loss, inverse_focal_loss, proper_focal_loss
from calibrant.focal.scalar import phi
from calibrant.focal.temperature import closest_temperature, temperature_bounds

__all__ = [
    "closest_temperature",
    "confidence_bias",
    "confidence_thresholds",
    "focal_log_probs",
    "focal_loss",
    "focal_map",
    "gamma_for_threshold",
    "inverse_focal_loss",
    "inverse_focal_map",
    "phi",
    "proper_focal_loss",
    "temperature_bounds",
]
