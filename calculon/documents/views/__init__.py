"""Results of the model as pages, and as the plain data of other pages and of pictures."""
