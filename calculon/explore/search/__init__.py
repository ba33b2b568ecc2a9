"""The search view."""
