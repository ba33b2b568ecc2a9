"""The editions of the cost model; each implements :class:`calculon.edition.Edition`."""

from calculon.editions.sc23 import Sc23

SC23 = Sc23()
"""The model as published (Isaev et al., SC'23), oddities included."""

__all__ = ["SC23"]
