"""Takes traces by HTTP at a loopback port and drops them: ``python -m benchmarks.city.collector PORT``."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Sink(BaseHTTPRequestHandler):
    """Says 200 to everything; what it does with a body is for a subclass to say."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # its name in the library
        self.take(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def take(self, body: bytes) -> None:
        """A body has come."""

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Sink).serve_forever()
