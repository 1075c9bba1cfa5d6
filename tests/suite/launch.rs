//! The launch is sacred: bytes, terminal, signals, exit status, and nothing that happens to the profiler harms it.
