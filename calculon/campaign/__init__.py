"""The whole run: from the time of a step to days, money and energy, under failures."""
