"""Pictures of results, drawn by matplotlib (extra ``plot``), which is imported only here and only when drawing."""
