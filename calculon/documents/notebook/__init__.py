"""The model in notebooks: results as HTML and as pictures, and the functions that are commands elsewhere."""
