"""The focal map on CIFAR10-s."""
