"""The command line: one file a command, nothing a library user needs."""
