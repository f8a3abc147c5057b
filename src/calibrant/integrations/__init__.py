"""Adapters for scikit-learn, Lightning and Hugging Face."""
