"""Arrays, values and paths from a user, checked: what cannot be used is refused in one line."""

from calibrant._inputs.arrays import *  # noqa: F403
from calibrant._inputs.class_labels import *  # noqa: F403
from calibrant._inputs.files import *  # noqa: F403
from calibrant._inputs.forms import *  # noqa: F403
from calibrant._inputs.groups import *  # noqa: F403
from calibrant._inputs.multilabel import *  # noqa: F403
from calibrant._inputs.truncated import *  # noqa: F403
from calibrant._inputs.values import *  # noqa: F403
