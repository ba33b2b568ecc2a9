"""Collectives as libraries run them: where a group sits, what each algorithm moves, and how long that takes."""
