"""From a question to a plan: which plan, does it fit, how long, and what else would do."""
