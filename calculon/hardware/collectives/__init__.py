"""Collectives as libraries run them: process group placement, traffic of each algorithm, and times."""
