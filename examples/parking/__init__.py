"""Parking guidance: retained counts of free places, reservations by request and response, a broker killed on the way.

`town` says who wants to park where, `ledger` knows whose a place is; `desk` are the programs on the mesh, `web` reads
the signs as a Web client; `check` says what is wrong; `picture` draws it.
"""
