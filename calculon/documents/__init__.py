"""Reports: the page of a result, comparisons, HTML, pictures, and tables of declarations and of the catalog.

They know statistics and plain data, never the model that made them.
"""
