//! Whole runs: the run folder and what is in it.
