//! Signals sent to the profiler are meant for the command: forwarded once, unless the terminal already gave them to the
//! whole foreground group.
