"""What people read: the page of an estimate, and tables of declarations and of the catalog.

Reports know statistics and plain data, never the model that made them, and so can print any of it.
"""
