"""``python -m benchmarks``: run every benchmark."""

from benchmarks import focal_map

if __name__ == "__main__":
    focal_map.main()
