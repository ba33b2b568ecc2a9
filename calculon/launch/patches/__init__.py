"""Edits of settings in a user's launch file, which otherwise stays unchanged byte for byte."""
