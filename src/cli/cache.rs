//! `stagemark cache`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cache::Wish;

pub(super) const AFTER_HELP: &str = "\
PATH is a model file, an index, or a folder, as of `stagemark inspect`. What is reached is verified by the same look at \
the page cache as in a run: artifact-cold (at most 1% of the payload resident), artifact-warm (at least 99%), partial, \
or unverified where that may not be asked. Nothing is done to any other file's cache, and no privilege is needed. Other \
caches that may hold the same bytes (the device's, a server's, a host's) are named, and not touched.

Examples:
  stagemark cache evict model.safetensors
  stagemark cache warm ./model-folder
  stagemark cache status --json ./model-folder | jq .reached

Exit status: 0 done; 1 where a file did not become so; 2 on wrong usage; 3 where that cannot be known.";

/// What is done to the page cache of artifacts.
#[derive(Debug, Subcommand)]
pub enum CacheAsk {
    /// Take the files out of the page cache, and say what stayed and who holds it
    #[command(after_help = AFTER_HELP)]
    Evict(CacheArgs),
    /// Read the files into the page cache, where there is room
    #[command(after_help = AFTER_HELP)]
    Warm(CacheArgs),
    /// Say how much of each file is in the page cache
    #[command(after_help = AFTER_HELP)]
    Status(CacheArgs),
}

#[derive(Debug, Args)]
pub struct CacheArgs {
    /// Model files, indexes, or folders; `raw:PATH` for a file that is all payload
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Exact figures as JSON
    #[arg(long)]
    pub json: bool,
}

impl CacheAsk {
    /// What is wished for, and of what.
    pub fn parts(self) -> (Wish, CacheArgs) {
        match self {
            CacheAsk::Evict(arguments) => (Wish::Cold, arguments),
            CacheAsk::Warm(arguments) => (Wish::Warm, arguments),
            CacheAsk::Status(arguments) => (Wish::AsIs, arguments),
        }
    }
}

/// The start condition of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheArg {
    Cold,
    Warm,
    AsIs,
}

impl From<CacheArg> for Wish {
    fn from(argument: CacheArg) -> Wish {
        match argument {
            CacheArg::Cold => Wish::Cold,
            CacheArg::Warm => Wish::Warm,
            CacheArg::AsIs => Wish::AsIs,
        }
    }
}
