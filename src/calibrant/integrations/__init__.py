"""Adapters for scikit-learn, PyTorch, torchmetrics, Lightning and Hugging Face."""
