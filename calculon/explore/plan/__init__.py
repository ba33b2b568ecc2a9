"""The plan view."""
