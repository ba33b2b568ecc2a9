"""Documents and charts as data, and renderers that show them: terminal, HTML, Markdown, CSV, matplotlib, Plotly."""
