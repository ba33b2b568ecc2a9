"""Results of the model as the plain data that pages and pictures are made of; commands and notebooks share them."""
