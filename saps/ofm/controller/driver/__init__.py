"""The controller on an event loop, alone or as one of a pair."""
