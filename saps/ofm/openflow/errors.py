"""What can go wrong when a switch is asked for something."""

from __future__ import annotations

from saps.ofm.openflow.requests import Request
from saps.ofm.openflow.values import SwitchError


class ChannelError(Exception):
    """A switch did not do what was asked; the text says which switch, what and why."""


class RefusedError(ChannelError):
    """The switch answered a request with an error. Other requests of the same call may have been done."""

    def __init__(self, dpid: int, request: Request, error: SwitchError) -> None:
        text = repr(request)
        super().__init__(f"switch {dpid:016x} refused {text[:300]}{'...' * (len(text) > 300)}: {error}")
        self.dpid = dpid
        self.request = request
        """For `Switch.apply`: the change that failed."""
        self.error = error


class NoAnswerError(ChannelError):
    """The switch did not answer in time; it may yet do what was asked."""


class SwitchGoneError(ChannelError):
    """The connection has ended; what was under way may have been done or not."""
