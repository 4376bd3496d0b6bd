"""Recorded traffic: record it from any broker, play it into a mesh at any speed, check order and gaps where it arrives.

`tape` is the file, `recording` fills one, `playing` plays one, `follow` compares what arrives with what was played;
`picture` draws it.
"""
