"""The model as a page in a browser: four views on one state, which is the address of the page.

A page is a pure function of its address. ``page_state`` reads an address and writes it, ``answers`` computes what it
asks for, as the commands do and with the same functions, each view makes ``parts`` of that (a title, HTML, a chart),
and ``page_server`` sends them: the whole page once, then the parts that a change of a control changes.
"""
