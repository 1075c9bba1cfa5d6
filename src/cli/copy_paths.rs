//! `stagemark copy-paths`: its arguments, and what becomes of them.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::signal::Signal;
use nix::unistd::{AccessFlags, faccessat};

use crate::copy_paths::plan::Choice;
use crate::copy_paths::record::Record;
use crate::copy_paths::report;
use crate::copy_paths::way::Regime;
use crate::copy_paths::{Options, To, measure};
use crate::event::text_of;
use crate::progress::StatusLine;
use crate::report::text::json_for_terminals;
use crate::stage::amount;

pub const AFTER_HELP: &str = "\
Copies real tensors of the artifact to memory that is there already, by each way that loaders have: out of a mapping that \
is touched for the first time (the file in the page cache, and in none), touched before, or filled by the kernel; out of \
memory that the file was read into, or the mapping copied into; through pinned memory; and past the page cache. Only the \
tensors' own pages are let go and brought in. What the copies are out of is asked of the kernel, and the bytes that came \
out are compared.

Examples:
  stagemark copy-paths model.safetensors
  stagemark copy-paths --ranks 4 --on /dev/shm --out here ./model-folder
  stagemark copy-paths --from here/copy-paths.json

Exit status: 0 where it was measured; 2 on wrong usage; 3 where it could not be, or not all of it; 128+N where signal N \
ended it (130: Ctrl-C). What had been measured by then is printed and kept: the repeats that were finished.";

#[derive(Debug, Args)]
pub struct CopyPathsArgs {
    /// A model file, an index, or a folder; `raw:PATH` for a file that is all payload
    #[arg(value_name = "ARTIFACT", required_unless_present = "from", conflicts_with = "from")]
    pub artifact: Option<PathBuf>,
    /// Make the tables again from what `--out` wrote
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// How many tensors, spread over the artifact, or `all` [default: as many as have 512 MiB together]
    #[arg(long, value_name = "N|all", value_parser = choice)]
    pub tensors: Option<Choice>,
    /// How many processes copy at once; with more than one, one alone is measured too
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub ranks: u32,
    /// How often each way is measured, after once to warm up
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Only this regime, as tables name it; may be repeated
    #[arg(long = "regime", value_name = "NAME", value_parser = regime)]
    pub regimes: Vec<Regime>,
    /// Copy to `host` memory, to every CUDA device (`cuda`), or to one (`cuda:N`); may be repeated [default: cuda where
    /// there is a device, else host]
    #[arg(long, value_name = "PLACE", value_parser = to)]
    pub to: Vec<To>,
    /// The CUDA driver [default: libcuda.so.1, as the loader finds it]
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub cuda_library: Option<PathBuf>,
    /// Copy the artifact to this folder for the time, and measure it there too; may be repeated
    #[arg(long, value_name = "DIR", value_parser = PathBufValueParser::new().try_map(place))]
    pub on: Vec<PathBuf>,
    /// The most memory to hold at once, like `8 GiB` [default: half of what is available]
    #[arg(long, value_name = "SIZE", value_parser = amount::size)]
    pub max_memory: Option<u64>,
    /// Write copy-paths.json, with every repeat's values, copy-paths.csv and copy-paths.png here; the first after each repeat
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print every repeat's values as JSON instead of the tables
    #[arg(long)]
    pub json: bool,
}

/// Bytes of tensors where no number of them is asked for.
const BYTES: u64 = 512 << 20;

/// What is to be printed, and what ended the measurement before its time.
#[derive(Debug)]
pub struct Answer {
    pub text: String,
    pub problem: Option<String>,
    pub signal: Option<Signal>,
}

impl CopyPathsArgs {
    /// Measures, or reads what was measured.
    ///
    /// # Errors
    /// Nothing was measured, or nothing could be read.
    pub fn answer(self) -> anyhow::Result<Answer> {
        let _made = self.out.as_deref().map(Made::prepare).transpose()?;
        let out = self.out.as_deref();
        let (record, signal, ended) = match (self.from, self.artifact) {
            (Some(file), _) => (Record::load(&file)?, None, None),
            (None, Some(artifact)) => {
                let options = Options {
                    artifact,
                    on: self.on,
                    choice: self.tensors.unwrap_or(Choice::Bytes(BYTES)),
                    ranks: self.ranks,
                    repeats: self.repeats,
                    regimes: self.regimes,
                    to: self.to,
                    cuda_library: self.cuda_library,
                    max_memory: self.max_memory,
                };
                let mut line = StatusLine::unless(false);
                let mut progress = |what: &str, share: f64| {
                    line.show(&format!("{:3.0}%  {what}", share.clamp(0.0, 1.0) * 100.0));
                };
                // What cannot be written now is told of at the end.
                let mut keep = |record: &Record| {
                    let _ = out.map(|folder| write_values(record, folder));
                };
                let done = measure(&options, &mut progress, &mut keep)?;
                if let (Some(signal), false) = (done.signal, done.record.is_of_use()) {
                    let problem = format!("ended by {signal}, before anything was measured");
                    return Ok(Answer { text: String::new(), problem: Some(problem), signal: Some(signal) });
                }
                let ended = done.record.problem.clone();
                (done.record, done.signal, ended)
            }
            (None, None) => anyhow::bail!("an ARTIFACT or --from FILE is needed"),
        };
        let text = match self.json {
            true => json_for_terminals(&serde_json::to_string_pretty(&record)?) + "\n",
            false => report::text(&record),
        };
        let written = out.map_or(Ok(()), |folder| write(&record, folder));
        let problem = written.err().map(|error| format!("{error:#}")).or(ended);
        Ok(Answer { text, problem, signal })
    }
}

/// The folders that were made for `--out`: those that nothing was written into are gone with this.
struct Made(Vec<PathBuf>);

impl Made {
    fn prepare(folder: &Path) -> anyhow::Result<Made> {
        let missing = |path: &&Path| !path.as_os_str().is_empty() && path.symlink_metadata().is_err();
        let made = Made(folder.ancestors().take_while(missing).map(Path::to_owned).collect());
        crate::run::prepare_folder(folder).with_context(|| format!("--out {}", text_of(folder)))?;
        Ok(made)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // The innermost first; one that has anything in it stays, and so do those around it.
        let _ = self.0.iter().try_for_each(std::fs::remove_dir);
    }
}

fn put(folder: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let path = folder.join(name);
    crate::run::replace(&path, bytes).with_context(|| text_of(&path))
}

/// Every repeat's values.
fn write_values(record: &Record, folder: &Path) -> anyhow::Result<()> {
    put(folder, "copy-paths.json", &serde_json::to_vec_pretty(record)?)
}

/// The three files.
fn write(record: &Record, folder: &Path) -> anyhow::Result<()> {
    write_values(record, folder)?;
    let mut rows = Vec::new();
    report::csv::write(record, &mut rows)?;
    put(folder, "copy-paths.csv", &rows)?;
    put(folder, "copy-paths.png", &report::picture::png(record)?)
}

/// A folder that a copy can be made in: hours may pass before that is tried.
fn place(folder: PathBuf) -> Result<PathBuf, String> {
    let wanted = "a folder that is there, and that may be written into, is expected";
    let metadata = std::fs::metadata(&folder).map_err(|error| format!("{wanted}: {error}"))?;
    if !metadata.is_dir() {
        return Err(format!("{wanted}: this is no folder"));
    }
    let may = AccessFlags::W_OK | AccessFlags::X_OK;
    faccessat(AT_FDCWD, &folder, may, AtFlags::AT_EACCESS).map_err(|error| format!("{wanted}: {}", error.desc()))?;
    Ok(folder)
}

fn choice(text: &str) -> Result<Choice, String> {
    match text {
        "all" => Ok(Choice::All),
        _ => match text.parse::<usize>() {
            Ok(count) if count > 0 => Ok(Choice::Count(count)),
            _ => Err("a number from 1, or `all`".to_owned()),
        },
    }
}

fn to(text: &str) -> Result<To, String> {
    match text.split_once(':') {
        None if text == "host" => Ok(To::Host),
        None if text == "cuda" => Ok(To::Cuda(None)),
        Some(("cuda", ordinal)) => {
            ordinal.parse().map(|n| To::Cuda(Some(n))).map_err(|_| "cuda:N with a number N".to_owned())
        }
        _ => Err("host, cuda or cuda:N".to_owned()),
    }
}

fn regime(text: &str) -> Result<Regime, String> {
    Regime::ALL
        .into_iter()
        .find(|regime| regime.name() == text)
        .ok_or_else(|| format!("one of {}", Regime::ALL.map(Regime::name).join(", ")))
}
