"""Need times machine: the time and the space of a layer, a block and a batch."""
