"""Smart-city applications of SAPS; each package is one command, `python -m examples.NAME`."""

import signal
import sys

if sys.argv[:1] == ["-m"]:  # Python is about to run one: Ctrl-C while it imports ends it without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)
