"""The model as an interactive page in a browser: five views of one state, which the page's address contains.

A page is a pure function of its address. ``page_state`` parses and formats addresses, ``answers`` computes the results
with the functions of the commands, each view renders them as ``parts`` (a title, HTML, a chart),
and ``page_server`` sends them: first the whole page, then the parts that a control changes.
"""
