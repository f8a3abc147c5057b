"""``python -m benchmarks``: run the benchmarks that need no data and take minutes."""

from benchmarks import calibrators, first_use, focal_map, losses, metrics, training
from benchmarks.timing import print_machine

if __name__ == "__main__":
    print_machine()
    first_use.main()
    focal_map.main()
    metrics.main()
    calibrators.main()
    losses.main()
    training.main()
