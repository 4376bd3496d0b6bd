"""The process: event loop, log lines, memory, service manager, files written whole."""
