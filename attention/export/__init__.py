"""The copied program, and a trace packed for a page without a server."""
