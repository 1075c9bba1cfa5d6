//! The output pump: a small process in a session of its own that carries the command's output to where the caller
//! wanted it, and outlives the recorder. Bytes move inside the kernel (tee(2), splice(2)), so that a pump killed at
//! any moment holds none of them.
