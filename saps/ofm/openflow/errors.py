"""Errors of requests to a switch."""

from __future__ import annotations

from saps.ofm.openflow.requests import Request
from saps.ofm.openflow.values import SwitchError


class ChannelError(Exception):
    """A switch that did not do what was asked; the text says which switch, what and why."""


class RefusedError(ChannelError):
    """A request that the switch answered with an error. Other requests of the same call may have been done."""

    def __init__(self, dpid: int, request: Request, error: SwitchError) -> None:
        text = repr(request)
        super().__init__(f"switch {dpid:016x} refused {text[:300]}{'...' * (len(text) > 300)}: {error}")
        self.dpid = dpid
        self.request = request
        """The failed request; `Switch.apply` makes it from a change (see `change_of`)."""
        self.error = error


class NoAnswerError(ChannelError):
    """A switch that did not answer in time; it may yet do what was asked."""


class SwitchGoneError(ChannelError):
    """A connection that has ended; requests under way may or may not have been done."""
