"""What a model is made of: layers with their FLOP, bytes and stored tensors, and the generators that arrange them."""
