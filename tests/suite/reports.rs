//! Reports from recorded runs, against golden files.
