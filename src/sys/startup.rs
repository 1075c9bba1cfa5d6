//! What the process was given, recorded before the Rust runtime changes it: signal dispositions and mask, and which of
//! the standard descriptors were closed. The launched command gets exactly these.
