//! How a launch is watched: what `stagemark run` is asked, and a series hands on to each of its runs.

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::{CacheArg, utf8};
use crate::event::text_of;
use crate::probe::device::{Place, cuda};
use crate::probe::stream::Choice;
use crate::record::{Options, Then};
use crate::report::color::Color;
use crate::stage::StageFile;
use crate::stage::asked::Work;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct WatchArgs {
    /// A model file, index or folder that the launch is about; may be repeated. `raw:PATH` takes all bytes as payload
    #[arg(long = "artifact", value_name = "PATH")]
    pub artifacts: Vec<PathBuf>,
    /// Follow this stage file: the name of a bundled one, or a path [default: by the programs that run]
    #[arg(long, value_name = "NAME|FILE")]
    pub stages: Option<OsString>,
    /// Add a stage: NAME=log:REGEX, NAME=http:URL (answered with status 200), NAME=tcp:HOST:PORT, NAME=unix:PATH,
    /// NAME=file:PATH, NAME=first_output:byte|line, NAME=mapping:any|all, NAME=unmap:PERCENT,
    /// NAME=residency:PERCENT, NAME=quiet:TIME, NAME=exit:any|CODE, NAME=notify; may be repeated
    #[arg(long = "stage", value_name = "NAME=KIND:ARGUMENT", value_parser = utf8())]
    pub one_offs: Vec<String>,
    /// Send a header with the requests of stages, its value taken from an environment variable and written to no file;
    /// VARIABLE alone is `Authorization: Bearer` with it; may be repeated
    #[arg(long, value_name = "HEADER=VARIABLE", value_parser = utf8())]
    pub header_env: Vec<String>,
    /// Requests that stand for the work, a JSON object a line with the keys of an `http` condition: asked after
    /// `first_response`; the stage `representative_work` is reached when all are accepted. Latencies are in responses.csv
    #[arg(long, value_name = "FILE")]
    pub workload: Option<PathBuf>,
    /// How many requests of the workload are in flight at a time
    #[arg(long, value_name = "N", default_value_t = 1, requires = "workload", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub concurrency: u16,
    /// Repeat the request of the stage `first_response` so often after it was accepted, one at a time: the first response's
    /// latency against the steady one, in responses.csv
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub repeat_response: u32,
    /// The stopping event: the stage at which the account ends, and at which runs are compared [default: the stage file's]
    #[arg(long, value_name = "STAGE", value_parser = utf8())]
    pub until: Option<String>,
    /// Make the start condition just before the command starts: take the artifacts out of the page cache, or read them into
    /// it. What was reached is recorded
    #[arg(long, value_enum, default_value_t = CacheArg::AsIs)]
    pub cache: CacheArg,
    /// Time between two samples, from 1ms to 1h
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = interval)]
    pub interval: Duration,
    /// Sample page faults with their addresses, one in N minor ones and every major one, and look at each tensor at
    /// each stage: faults.csv, tensors.csv, touched.svg and .png [N where none is given: 64]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "64", value_parser = period)]
    pub faults: Option<NonZeroU64>,
    /// Do not keep what the command prints
    #[arg(long)]
    pub no_output_log: bool,
    /// Put the launch into a control group of its own, so that the kernel says what all of it was charged for; limits stay
    /// as they are
    #[arg(long, value_enum, default_value_t = CgroupArg::Off)]
    pub cgroup: CgroupArg,
    /// Reset the processes' high-water marks at each stage, so that the peak between two stages is the kernel's: lowers what
    /// getrusage tells the launch of itself
    #[arg(long)]
    pub reset_peaks: bool,
    /// NVIDIA's management library [default: libnvidia-ml.so.1, as the loader finds it]
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub nvidia_ml: Option<PathBuf>,
    /// Ask the CUDA driver for the memory of devices of which NVML does not tell (boards whose device has the host's
    /// memory): takes a context on each, in a process beside the launch, whose own cost is measured and shown
    #[arg(long, hide_short_help = true)]
    pub cuda_memory: bool,
    /// The CUDA driver's library [default: libcuda.so.1, as the loader finds it]
    #[arg(long, value_name = "PATH", requires = "cuda_memory", hide_short_help = true)]
    pub cuda_library: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CgroupArg {
    Auto,
    Off,
}

impl WatchArgs {
    /// What is asked of a run of this command, with the stage file and the workload loaded. What is no matter of watching
    /// is as without options.
    ///
    /// # Errors
    /// The stage file or the workload is none.
    pub fn options(self, argv: Vec<OsString>) -> anyhow::Result<Options> {
        Ok(Options {
            out: None,
            artifacts: self.artifacts,
            stages: self.stages.as_deref().map(StageFile::load).transpose()?,
            one_offs: self.one_offs,
            until: self.until,
            then: Then::Keep,
            interval: self.interval,
            quiet: false,
            color: Color::default(),
            output_log: !self.no_output_log,
            cgroup: matches!(self.cgroup, CgroupArg::Auto),
            reset_peaks: self.reset_peaks,
            faults: self.faults,
            devices: Place::of(self.nvidia_ml, self.cuda_memory.then_some(cuda::Wanted { library: self.cuda_library })),
            header_env: self.header_env,
            workload: self.workload.as_deref().map(|path| workload(path, self.concurrency.into())).transpose()?,
            repeat_response: self.repeat_response.into(),
            cache: self.cache.into(),
            stream: Choice::from_environment(),
            argv,
        })
    }

    /// The words of a command line of `stagemark run` that ask the same.
    pub fn words(&self) -> Vec<OsString> {
        // Each by its name, so that none is forgotten.
        let WatchArgs {
            artifacts,
            stages,
            one_offs,
            header_env,
            workload,
            concurrency,
            repeat_response,
            until,
            cache,
            interval,
            faults,
            no_output_log,
            cgroup,
            reset_peaks,
            nvidia_ml,
            cuda_memory,
            cuda_library,
        } = self;
        let mut words: Vec<OsString> = Vec::new();
        let mut option = |name: &str, value: OsString| {
            let mut word = OsString::from(format!("--{name}="));
            word.push(value);
            words.push(word);
        };
        artifacts.iter().for_each(|path| option("artifact", path.into()));
        stages.iter().for_each(|stages| option("stages", stages.clone()));
        one_offs.iter().for_each(|text| option("stage", text.into()));
        header_env.iter().for_each(|text| option("header-env", text.into()));
        if let Some(path) = workload {
            option("workload", path.into());
            option("concurrency", concurrency.to_string().into());
        }
        option("repeat-response", repeat_response.to_string().into());
        until.iter().for_each(|stage| option("until", stage.into()));
        option("cache", word(cache));
        option("interval", format!("{}ns", interval.as_nanos()).into());
        faults.iter().for_each(|period| option("faults", period.to_string().into()));
        option("cgroup", word(cgroup));
        nvidia_ml.iter().for_each(|path| option("nvidia-ml", path.into()));
        cuda_library.iter().for_each(|path| option("cuda-library", path.into()));
        let switches =
            [("--no-output-log", no_output_log), ("--reset-peaks", reset_peaks), ("--cuda-memory", cuda_memory)];
        words.extend(switches.into_iter().filter(|(_, is_on)| **is_on).map(|(name, _)| name.into()));
        words
    }
}

/// A value as the command line has it.
fn word(value: &impl ValueEnum) -> OsString {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default().into()
}

/// The requests in a file of at most 16 MiB.
fn workload(path: &Path, concurrency: usize) -> anyhow::Result<Work> {
    const LARGEST: u64 = 16 << 20;
    let shown = text_of(path);
    let told = || format!("--workload {shown}");
    // Asked before the open, which would wait for the writer of a FIFO.
    let metadata = std::fs::metadata(path).with_context(told)?;
    anyhow::ensure!(metadata.is_file(), "{}: not a file", told());
    anyhow::ensure!(metadata.len() <= LARGEST, "{}: larger than {LARGEST} bytes", told());
    let text = String::from_utf8(std::fs::read(path).with_context(told)?).with_context(told)?;
    Ok(Work::parse(&text, &shown, concurrency)?)
}

/// One in so many. The kernel's own counter of a period has 63 bits; nobody has that many faults.
fn period(text: &str) -> Result<NonZeroU64, String> {
    match text.parse::<u64>().map(NonZeroU64::new) {
        Ok(Some(period)) if period.get() <= 1_000_000_000 => Ok(period),
        Ok(None) => Err("one in none is no sample; `--faults=1` takes every fault".to_owned()),
        _ => Err("a number from 1 to 1000000000: one minor fault in so many is a sample".to_owned()),
    }
}

/// `20ms`, `1s`, `500us`: from 1 ms to 1 h.
fn interval(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>().map_err(|_| "not a time: write it like 20ms or 1s".to_owned())?;
    let time = Duration::try_from(parsed).map_err(|_| "a time cannot be negative".to_owned())?;
    match time {
        time if time < Duration::from_millis(1) => Err("the shortest tick is 1ms".to_owned()),
        time if time > Duration::from_secs(3600) => Err("the longest tick is 1h".to_owned()),
        time => Ok(time),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::{CommandFactory, Parser};

    fn watch(words: &[OsString]) -> WatchArgs {
        let all = ["stagemark", "run"].map(OsString::from).into_iter().chain(words.iter().cloned());
        match Cli::try_parse_from(all.chain(["--", "prog"].map(OsString::from))).unwrap().verb {
            Verb::Run(run) => run.watch,
            _ => panic!("not run"),
        }
    }

    #[test]
    fn a_series_hands_on_every_option_as_it_was_given() {
        let plain = watch(&[]);
        assert_eq!(watch(&plain.words()), plain);
        let given = [
            "--artifact=a b",
            "--artifact=--x",
            "--stages=vllm",
            "--stage=s=log:^a, b",
            "--header-env=X-Key=KEY",
            "--workload=w.jsonl",
            "--concurrency=3",
            "--repeat-response=4",
            "--until=s",
            "--cache=cold",
            "--interval=1500us",
            "--faults=7",
            "--no-output-log",
            "--cgroup=auto",
            "--reset-peaks",
            "--nvidia-ml=n.so",
            "--cuda-memory",
            "--cuda-library=c.so",
        ];
        let given = watch(&given.map(OsString::from));
        assert_eq!(given.interval, Duration::from_micros(1500));
        assert_eq!(watch(&given.words()), given);
        // All that a run may be asked for was asked for, and is another thing than what it does without.
        let own = ["out", "then", "quiet", "color", "argv", "help"];
        let run = Cli::command().get_subcommands().find(|verb| verb.get_name() == "run").unwrap().clone();
        let words = given.words();
        for argument in run.get_arguments().filter(|argument| !own.contains(&argument.get_id().as_str())) {
            let name = format!("--{}", argument.get_long().unwrap());
            let is_it = |word: &&OsString| word.to_str().unwrap().split('=').next() == Some(&name);
            let of_given = words.iter().filter(is_it).collect::<Vec<_>>();
            assert!(!of_given.is_empty(), "{name}");
            assert_ne!(of_given, plain.words().iter().filter(is_it).collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn fault_samples_are_asked_for_with_a_number_or_without() {
        let asked = |arguments: &[&str]| {
            let all = ["stagemark", "run"].iter().chain(arguments).chain(&["--", "prog"]);
            match Cli::try_parse_from(all).map(|cli| cli.verb) {
                Ok(Verb::Run(run)) => Some(run.watch.faults.map(NonZeroU64::get)),
                _ => None,
            }
        };
        assert_eq!(asked(&[]), Some(None));
        assert_eq!(asked(&["--faults"]), Some(Some(64)));
        assert_eq!(asked(&["--faults=1"]), Some(Some(1)));
        for wrong in ["0", "-1", "x", "", "1.5", "1000000001", "99999999999999999999"] {
            assert_eq!(asked(&[&format!("--faults={wrong}")]), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_read_and_bounded() {
        assert_eq!(interval("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        for wrong in ["", "20", "0ms", "-1s", "2h", "x"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
