"""Architecture of a model: layers with FLOP, bytes and activation memory, and generators that combine them."""
