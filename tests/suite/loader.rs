//! The reference loader's modes, held against its own truth.
