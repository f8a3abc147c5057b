"""The losses on images that ResNet-8 fits."""
