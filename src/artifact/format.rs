//! One file a format: header → layout.
