//! The run folder while it is written: made before the command starts, appended live, and never in the command's way.
//! What cannot be written is dropped, counted and told at the end; a file never keeps half a row.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use csv::ByteRecord;
use nix::sys::resource::{Resource, getrlimit};

use crate::run::responses::RESPONSES_HEADER;
use crate::run::{self, Meta, rows};

/// Rows are handed to the kernel at each tick, or when this many bytes wait.
const BUFFER: usize = 64 * 1024;

/// `output.log` takes no more than this.
const OUTPUT_LIMIT: u64 = 64 * 1024 * 1024;

/// Why `--out` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("--out {}: the folder is not empty: name a new or an empty one", path.display())]
    NotEmpty { path: PathBuf },
    #[error("--out {}: not a folder", path.display())]
    NotAFolder { path: PathBuf },
}

/// An append-only file of rows.
pub(super) struct Sink {
    name: &'static str,
    file: File,
    /// Length up to the last whole row that the file holds.
    good: u64,
    waiting: Vec<u8>,
    rows_waiting: u64,
    rows_lost: u64,
    error: Option<io::Error>,
}

impl Sink {
    fn create(folder: &Path, name: &'static str) -> io::Result<Sink> {
        let file = OpenOptions::new().write(true).create_new(true).open(folder.join(name))?;
        Ok(Sink { name, file, good: 0, waiting: Vec::new(), rows_waiting: 0, rows_lost: 0, error: None })
    }

    pub(super) fn push(&mut self, row: &[u8]) {
        self.waiting.extend_from_slice(row);
        self.rows_waiting += 1;
        if self.waiting.len() >= BUFFER {
            self.flush();
        }
    }

    pub(super) fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        match self.file.write_all_at(&self.waiting, self.good) {
            Ok(()) => self.good += self.waiting.len() as u64,
            Err(error) => {
                // The part that was written may end within a row.
                let _ = self.file.set_len(self.good);
                self.rows_lost += self.rows_waiting;
                self.error = Some(error);
            }
        }
        self.waiting.clear();
        self.rows_waiting = 0;
    }

    /// Bytes of whole rows, those that wait included.
    pub(super) fn length(&self) -> u64 {
        self.good + self.waiting.len() as u64
    }

    pub(super) fn loss(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        Some(format!("{}: {} rows could not be written: {error}", self.name, self.rows_lost))
    }
}

fn row_bytes(row: &ByteRecord) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::with_capacity(256));
    // Writing to memory does not fail.
    let _ = writer.write_byte_record(row);
    writer.into_inner().unwrap_or_default()
}

/// A limit of open files under which none is spent on what only makes things safer.
const MANY_DESCRIPTORS: u64 = 64;

/// The folder and its open files.
pub struct Folder {
    path: PathBuf,
    /// The folder itself: whoever puts another in its place does not get what is written.
    held: Option<File>,
    samples: Sink,
    events: Sink,
    detail: Sink,
    output: Option<Sink>,
    output_cut: bool,
    /// A descriptor held for `run.json`, without which nothing of the folder can be read.
    spare: Option<File>,
    meta_error: Option<String>,
    responses_lost: Vec<String>,
    /// Made with its first row.
    responses: Option<Sink>,
}

impl Folder {
    /// Makes the folder and its files.
    ///
    /// Where that fails for a reason that is not the user's choice of `--out` (read-only, full), a folder in the
    /// directory for temporary files takes its place, and the second value says so; `None` if that fails too.
    pub fn create(
        out: Option<&Path>,
        default_name: &str,
        with_output: bool,
    ) -> Result<(Option<Folder>, Vec<String>), FolderError> {
        if let Some(path) = out {
            refuse_what_is_there(path)?;
        }
        let wanted = out.map_or_else(|| Path::new("stagemark-runs").join(default_name), Path::to_owned);
        let mut warnings = Vec::new();
        // A name for each user: who made the folder first would keep others out.
        let own = format!("stagemark-runs-{}", nix::unistd::geteuid());
        let elsewhere = std::env::temp_dir().join(own).join(default_name);
        for base in [wanted, elsewhere] {
            match Folder::create_at(&base, out == Some(base.as_path()), with_output) {
                Ok(folder) => {
                    if !warnings.is_empty() {
                        warnings.push(format!("the run folder is {} instead", folder.path.display()));
                    }
                    return Ok((Some(folder), warnings));
                }
                Err(error) => warnings.push(format!("the run folder {} cannot be written: {error}", base.display())),
            }
        }
        warnings.push("the run goes on without being recorded".to_owned());
        Ok((None, warnings))
    }

    fn create_at(path: &Path, exactly: bool, with_output: bool) -> io::Result<Folder> {
        let path = if exactly {
            std::fs::create_dir_all(path)?;
            path.to_owned()
        } else {
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            create_fresh(path)?
        };
        let path = std::path::absolute(path)?;
        let open = || OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(&path).ok();
        // Where descriptors are short the path must do: without one of them the command could not be started.
        let held = has_descriptors_to_spare().then(open).flatten();
        let place = place_of(held.as_ref(), &path);
        let mut folder = Folder {
            samples: Sink::create(&place, run::SAMPLES)?,
            events: Sink::create(&place, run::EVENTS)?,
            detail: Sink::create(&place, run::DETAIL)?,
            output: with_output.then(|| Sink::create(&place, run::OUTPUT)).transpose()?,
            held,
            output_cut: false,
            spare: spare(),
            meta_error: None,
            responses_lost: Vec::new(),
            responses: None,
            path,
        };
        folder.samples.push(&row_bytes(&rows::sample_header()));
        folder.events.push(&row_bytes(&ByteRecord::from(&rows::EVENT_HEADER[..])));
        folder.detail.push(&row_bytes(&ByteRecord::from(&rows::DETAIL_HEADER[..])));
        folder.flush();
        let sinks = [&mut folder.samples, &mut folder.events, &mut folder.detail];
        let failed = sinks.into_iter().find_map(|sink| sink.error.take());
        failed.map_or(Ok(folder), Err)
    }

    /// Takes the folder away again: the command was never started.
    pub fn discard(self) {
        for name in [run::SAMPLES, run::EVENTS, run::DETAIL, run::OUTPUT, run::META].into_iter().chain([
            run::faults::FAULTS,
            run::faults::LAYOUT,
            run::faults::RESIDENCY,
        ]) {
            let _ = std::fs::remove_file(self.place().join(name));
        }
        // Fails, as it should, where the user's own folder holds something by now.
        let _ = std::fs::remove_dir(&self.path);
    }

    /// Another file of rows, for whoever writes it.
    pub(super) fn sink(&self, name: &'static str, header: &[&str]) -> io::Result<Sink> {
        let mut sink = Sink::create(&self.place(), name)?;
        sink.push(&row_bytes(&ByteRecord::from(header)));
        sink.flush();
        sink.error.take().map_or(Ok(sink), Err)
    }

    /// Where it was made, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads to the folder as long as this value is there, whatever has its name by now.
    pub fn place(&self) -> PathBuf {
        place_of(self.held.as_ref(), &self.path)
    }

    /// Where it is now, for people.
    pub fn path_now(&self) -> PathBuf {
        let shown = self.held.as_ref().and_then(|_| std::fs::read_link(self.place()).ok());
        let is_there = |path: &PathBuf| {
            let of = |path: &Path| std::fs::metadata(path).ok().map(|seen| (seen.dev(), seen.ino()));
            of(path).is_some() && of(path) == of(&self.place())
        };
        // The name it was given where that leads there still: a link on the way is the user's own.
        if is_there(&self.path) { self.path.clone() } else { shown.filter(is_there).unwrap_or(self.path.clone()) }
    }

    pub fn sample(&mut self, sample: &crate::sample::Sample) {
        self.samples.push(&row_bytes(&rows::sample_row(sample)));
    }

    pub fn event(&mut self, event: &crate::event::Event) {
        self.events.push(&row_bytes(&rows::event_row(event)));
    }

    pub fn detail(&mut self, detail: &crate::run::Detail) {
        self.detail.push(&row_bytes(&rows::detail_row(detail)));
    }

    /// Keeps a printed line, as long as `output.log` is within its limit.
    pub fn line(&mut self, line: &crate::run::LoggedLine) {
        if let Some(sink) = &mut self.output {
            let row = rows::output_line(line);
            if sink.good + (sink.waiting.len() + row.len()) as u64 > OUTPUT_LIMIT {
                self.output_cut = true;
            } else {
                sink.push(&row);
            }
        }
    }

    /// Keeps a response by which a stage was reached.
    pub fn response(&mut self, stage: &str, part: usize, text: &str) {
        let name = match part {
            0 => format!("response-{stage}.txt"),
            part => format!("response-{stage}-{part}.txt"),
        };
        let written = run::replace(&self.place().join(&name), text.as_bytes());
        self.responses_lost.extend(written.err().map(|error| format!("{name}: could not be written: {error}")));
    }

    /// A row of `responses.csv`.
    pub fn answer(&mut self, row: Vec<String>) {
        if self.responses.is_none() {
            match self.sink(run::RESPONSES, &RESPONSES_HEADER) {
                Ok(sink) => self.responses = Some(sink),
                Err(error) => {
                    let lost = format!("{}: could not be written: {error}", run::RESPONSES);
                    if !self.responses_lost.contains(&lost) {
                        self.responses_lost.push(lost);
                    }
                }
            }
        }
        if let Some(sink) = &mut self.responses {
            sink.push(&row_bytes(&ByteRecord::from(row)));
        }
    }

    /// Hands every waiting row to the kernel.
    pub fn flush(&mut self) {
        self.samples.flush();
        self.events.flush();
        self.detail.flush();
        for sink in self.output.iter_mut().chain(&mut self.responses) {
            sink.flush();
        }
    }

    /// Writes `run.json`, whole or not at all.
    pub fn meta(&mut self, meta: &Meta) {
        self.spare = None;
        let written = serde_json::to_vec_pretty(meta)
            .map_err(io::Error::other)
            .and_then(|bytes| run::replace(&self.place().join(run::META), &bytes));
        self.meta_error = written.err().map(|error| format!("{}: could not be written: {error}", run::META));
        self.spare = spare();
    }

    /// What could not be written so far.
    pub fn losses(&self) -> Vec<String> {
        let sinks = [&self.samples, &self.events, &self.detail].into_iter().chain(&self.output).chain(&self.responses);
        let others = self.meta_error.iter().chain(&self.responses_lost).cloned();
        let mut losses: Vec<String> = sinks.filter_map(Sink::loss).chain(others).collect();
        if self.output_cut {
            losses.push(format!("{}: ends at its limit of {} MiB", run::OUTPUT, OUTPUT_LIMIT >> 20));
        }
        losses
    }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

fn has_descriptors_to_spare() -> bool {
    getrlimit(Resource::RLIMIT_NOFILE).is_ok_and(|(limit, _)| limit >= MANY_DESCRIPTORS)
}

/// The way to a folder by its descriptor (proc_pid_fd(5)), where there is one.
fn place_of(held: Option<&File>, path: &Path) -> PathBuf {
    let by_descriptor = held.map(|held| PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())));
    by_descriptor.filter(|place| place.is_dir()).unwrap_or_else(|| path.to_owned())
}

/// Refuses a folder that holds something.
pub(crate) fn refuse_what_is_there(path: &Path) -> Result<(), FolderError> {
    match std::fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(FolderError::NotEmpty { path: path.to_owned() }),
            None => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(FolderError::NotAFolder { path: path.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Makes a folder that was not there, with a number behind its name if need be.
pub(crate) fn create_fresh(path: &Path) -> io::Result<PathBuf> {
    for number in 1.. {
        let mut name = path.as_os_str().to_owned();
        if number > 1 {
            name.push(format!("-{number}"));
        }
        match std::fs::create_dir(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 10_000 => {}
            made => return made.map(|()| PathBuf::from(name)),
        }
    }
    unreachable!("the numbers do not end")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::At;
    use crate::metric::Values;
    use crate::sample::Sample;

    fn create(out: &Path) -> Folder {
        Folder::create(Some(out), "x", true).unwrap().0.unwrap()
    }

    #[test]
    fn a_folder_with_something_in_it_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("a"), "").unwrap();
        assert!(matches!(Folder::create(Some(scratch.path()), "x", true), Err(FolderError::NotEmpty { .. })));
        let file = scratch.path().join("a");
        assert!(matches!(Folder::create(Some(&file), "x", true), Err(FolderError::NotAFolder { .. })));
    }

    #[test]
    fn a_full_disk_loses_rows_and_says_so_but_keeps_no_half_row() {
        let scratch = tempfile::tempdir().unwrap();
        let mut folder = create(&scratch.path().join("run"));
        // A limit on the file's size stands for the full disk: /dev/full cannot be truncated.
        let sample = |t| Sample { t: At(t), late_ns: 0, cost_ns: 0, values: Values::ABSENT };
        folder.sample(&sample(1));
        folder.flush();
        folder.samples.file = File::open(folder.path.join(run::SAMPLES)).unwrap();
        folder.sample(&sample(2));
        folder.flush();
        assert_eq!(folder.losses().len(), 1);
        assert!(folder.losses()[0].starts_with("samples.csv: 1 rows"));
        let text = std::fs::read_to_string(folder.path.join(run::SAMPLES)).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn what_is_put_in_the_folders_place_gets_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let (given, moved, trap) =
            (scratch.path().join("run"), scratch.path().join("moved"), scratch.path().join("trap"));
        let mut folder = create(&given);
        std::fs::create_dir(&trap).unwrap();
        std::fs::rename(&given, &moved).unwrap();
        std::os::unix::fs::symlink(&trap, &given).unwrap();
        folder.sample(&Sample { t: At(1), late_ns: 0, cost_ns: 0, values: Values::ABSENT });
        folder.flush();
        drop(folder.sink("more.csv", &["a"]).unwrap());
        run::replace(&folder.place().join(run::META), b"{}").unwrap();
        assert_eq!(std::fs::read_dir(&trap).unwrap().count(), 0);
        for name in [run::META, "more.csv"] {
            assert!(moved.join(name).is_file(), "{name}");
        }
        assert_eq!((folder.path(), folder.path_now()), (given.as_path(), moved));
    }

    #[test]
    fn names_are_never_taken_twice() {
        let scratch = tempfile::tempdir().unwrap();
        let first = create_fresh(&scratch.path().join("a")).unwrap();
        let second = create_fresh(&scratch.path().join("a")).unwrap();
        assert_ne!(first, second);
        assert!(second.ends_with("a-2"));
    }
}
