"""Reports: pages of results, comparisons, HTML, charts, and tables of declarations and of the catalog.

Reports use statistics and plain data only, never the model that computed them.
"""
