//! The process tree, its counters and its mappings.
