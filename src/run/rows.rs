//! The rows of a run folder's files as text, both ways.
