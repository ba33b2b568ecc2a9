"""Studies: many searches in one or several processes or on a cluster, with a journal to resume interrupted runs."""
