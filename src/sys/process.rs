//! Processes, signals and file descriptors beyond what nix wraps.
