//! Model files, good and bad, through `stagemark inspect`.
