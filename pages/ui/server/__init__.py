"""What keeps a server alive: the queue, the traces, the limits, the headers."""
