"""Charts as plain data, which Plotly draws: each is made of results, and knows no page."""
