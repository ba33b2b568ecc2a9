"""Studies: many searches, run by one process, several or a cluster, kept in a journal and resumed."""
