"""Which layers make a block: generators that yield them top to bottom, in reading order."""
