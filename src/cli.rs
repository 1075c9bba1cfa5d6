//! The command line: clap structs in, plain options out.
