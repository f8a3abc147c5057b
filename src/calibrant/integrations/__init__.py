"""calibrant inside other libraries: scikit-learn, Lightning, Hugging Face."""
