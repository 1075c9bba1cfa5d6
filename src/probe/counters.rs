//! Inherited perf counters: they count the whole tree, the dead that nobody waited for included.
