"""``python -m benchmarks``: run every benchmark."""

from benchmarks import focal_map, metrics

if __name__ == "__main__":
    focal_map.main()
    metrics.main()
