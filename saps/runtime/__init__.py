"""The process around a program: event loop, logging, memory, service manager, atomic files."""
