"""Exports of a page: files, and the equivalent commands."""
