//! A rank: a process of its own that copies tensors when it is told to, and says what it took. Its page tables, its
//! counters and its context of a device are those of no other.
//!
//! One JSON object a line comes on standard input, one goes out for each on standard output. A file that is cut short
//! while it is mapped ends the process with SIGBUS; whoever started it says so.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, Write};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::counters::{Counters, Taken};
use super::destination::{Destination, Kind};
use super::source::{self, Opened, Span};
use super::way::Way;
use crate::probe::device::nvml::Library;
use crate::sys::cuda::Driver;
use crate::sys::process::{adopt, close_all_but};

/// The hidden verb, and the name by which process listings show the process.
pub const NAME: &str = "copy-paths-rank";

/// The first line that a rank is given.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Descriptors of the artifacts, inherited.
    pub files: Vec<RawFd>,
    pub tensors: Vec<Span>,
    pub destination: Kind,
    /// The CUDA driver's library, where it is not the loader's usual one; text that loses nothing of a path.
    #[serde(default)]
    pub cuda_library: Option<PathBuf>,
}

/// Every further line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub way: Way,
    /// Whether the destination's bytes are to be compared, which takes longer than the copies.
    pub verify: bool,
}

/// As the only argument, or before a library's path: instead of copying, it says which CUDA devices there are.
pub const DEVICES: &str = "--devices";

/// What there is to know of the devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Devices {
    /// The names of the CUDA devices, or why none is told of.
    pub cuda: Result<Vec<String>, String>,
    /// NVIDIA's devices as its management library tells of them: driver, and links to the host.
    pub links: Vec<String>,
}

fn devices(library: Option<&Path>) -> Devices {
    let names = || {
        let driver = Driver::open_to_copy(library)?;
        let name = |index| Ok(driver.describe(index)?.name.unwrap_or_default().chars().take(128).collect());
        (0..driver.count()?).map(name).collect()
    };
    // Another library than the usual one is not of this host's devices.
    let links = match library {
        None => Library::open(None).map(|library| library.links()).unwrap_or_default(),
        Some(_) => Vec::new(),
    };
    Devices { cuda: names(), links }
}

/// What a rank answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Ready,
    Done(Pass),
    /// It cannot be done here: why, for people.
    Refused(String),
}

/// One pass over all tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// Nanoseconds of all but the copies: mapping, touching, reading, cloning, pinning.
    pub prepare_ns: u64,
    /// Nanoseconds of the copies to the destination, each completed.
    pub copy_ns: u64,
    /// What the kernel counted meanwhile.
    pub taken: Taken,
    /// What the copies were out of, as `/proc/self/maps` says.
    pub source: String,
    /// Whether the destination's bytes were the file's, where they were compared.
    pub verified: Option<bool>,
}

impl Pass {
    pub fn total_ns(&self) -> u64 {
        self.prepare_ns.saturating_add(self.copy_ns)
    }
}

/// The rank's process. Must be dispatched before anything opens a descriptor.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    // Only the name is lost if this fails.
    let _ = nix::sys::prctl::set_name(c"copy-paths-rank");
    if arguments.next().is_some_and(|word| word == DEVICES) {
        let library = arguments.next();
        return match serde_json::to_writer(std::io::stdout(), &devices(library.as_deref().map(Path::new))) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let mut lines = std::io::stdin().lock().lines();
    let Some(Ok(line)) = lines.next() else { return ExitCode::FAILURE };
    let mut rank = match serde_json::from_str::<Setup>(&line).map_err(anyhow::Error::from).and_then(Rank::new) {
        Ok(rank) => rank,
        Err(error) => {
            let _ = say(&Answer::Refused(format!("{error:#}")));
            return ExitCode::FAILURE;
        }
    };
    if say(&Answer::Ready).is_err() {
        return ExitCode::FAILURE;
    }
    for line in lines {
        let Ok(line) = line else { return ExitCode::FAILURE };
        let answer = match serde_json::from_str::<Order>(&line).map_err(anyhow::Error::from).and_then(|o| rank.pass(o))
        {
            Ok(pass) => Answer::Done(pass),
            Err(error) => Answer::Refused(format!("{error:#}")),
        };
        if say(&answer).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn say(answer: &Answer) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    out.write_all(b"\n")?;
    out.flush()
}

struct Rank {
    opened: Opened,
    destination: Destination,
    /// SHA-256 of all tensors' bytes, once they have been compared.
    expected: Option<String>,
}

impl Rank {
    fn new(setup: Setup) -> anyhow::Result<Rank> {
        close_all_but(&setup.files);
        let mut files = Vec::new();
        for fd in &setup.files {
            let file = adopt(*fd).ok_or_else(|| anyhow::anyhow!("descriptor {fd} was not inherited"))?;
            files.push(File::from(file));
        }
        let opened = Opened::new(files, setup.tensors)?;
        let library = setup.cuda_library.as_deref();
        let destination = Destination::new(setup.destination, library, opened.tensors())?;
        Ok(Rank { opened, destination, expected: None })
    }

    fn pass(&mut self, order: Order) -> anyhow::Result<Pass> {
        if order.verify {
            self.destination.spoil()?;
        }
        let before = Counters::now();
        let mut pass = source::pass(order.way, &self.opened, &mut self.destination)?;
        pass.taken = Counters::now().since(&before);
        if order.verify {
            let expected = match self.expected.take() {
                Some(expected) => expected,
                None => self.opened.digest()?,
            };
            pass.verified = Some(self.destination.digest()? == expected);
            self.expected = Some(expected);
        }
        Ok(pass)
    }
}
