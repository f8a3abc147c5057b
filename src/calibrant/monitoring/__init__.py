"""Watch a model in use: calibration over time, and an alarm that may be looked at every day."""

from calibrant.monitoring.diagnosis import Diagnosis, Gap
from calibrant.monitoring.page import write_page
from calibrant.monitoring.repair import Candidate, Repair
from calibrant.monitoring.result import Period, Watch
from calibrant.monitoring.state import Step
from calibrant.monitoring.watching import watch

__all__ = [
    "Candidate",
    "Diagnosis",
    "Gap",
    "Period",
    "Repair",
    "Step",
    "Watch",
    "watch",
    "write_page",
]
