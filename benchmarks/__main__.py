"""``python -m benchmarks``: run every benchmark."""

from benchmarks import calibrators, focal_map, losses, metrics, training

if __name__ == "__main__":
    focal_map.main()
    metrics.main()
    calibrators.main()
    losses.main()
    training.main()
