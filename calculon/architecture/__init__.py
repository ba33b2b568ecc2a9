"""The architecture of a model: layers, their FLOP, bytes and activation memory, and generators that arrange them."""
