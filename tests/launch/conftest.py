"""Tests of launchers: files of users beside them are no modules."""

collect_ignore = ["scripts"]
