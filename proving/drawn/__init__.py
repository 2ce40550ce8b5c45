"""Faults drawn at random in networks of the catalogue and small ones: the measure while causes are worked on.

A seed decides everything, which part a case is in too: seeds below 1,000 are for development and may be looked at, those from
1,000 on are held out and run once.
"""
