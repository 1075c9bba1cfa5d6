//! The command's two output streams: which are passed on as they are, which must be interposed, and where what goes
//! through them can be read.
//!
//! A regular file is never interposed: it is followed. A pipe, a terminal or a stream socket is, by a pipe or a pty of
//! the same kind; everything else is passed on and not seen. Two streams that were one stay one.
//!
//! # What a pty in place of the terminal cannot be
//!
//! It is not the command's controlling terminal; that stays the real one, with the keyboard, so that the death of any of
//! the profiler's processes cannot take the terminal from the command. Modes and size are copied ([`super::modes`]).
//! What remains different, where standard output or error is a terminal:
//!
//! - tcgetpgrp(1) and tcgetpgrp(2) say ENOTTY, and ttyname(3) of them names the pty. A program that asks these for its
//!   terminal, as interactive shells and pagers do, would find no job control or no keyboard: they are given the
//!   terminal itself (`needs_terminal`), and what they print is not seen.
//! - Output of a background job is not stopped by `stty tostop`.
//! - Modes take effect on the terminal up to 25 ms after they were set, while the profiler lives.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{SockType, getsockopt, sockopt};
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::sys::termios::{OutputFlags, SetArg, tcgetattr, tcsetattr};
use nix::unistd::{Whence, isatty, lseek, pipe2};

use super::helpers::Helpers;
use super::line::LiveLine;
use super::modes::Modes;
use super::pump::{self, Ends, Outcome};
use super::tree::TreeView;
use super::witness::Witness;
use crate::event::{Pid, Stream};
use crate::sys::process::{Death, SharedPage, pty_slave, reap, set_window_size, terminal_device, window_size};
use crate::sys::startup;

/// What the pipes between command, pump and destination hold at most, where the user's limits allow it.
const PIPE_BYTES: i32 = 1 << 20;
/// How long to wait for a pump that has nothing left to do.
const LEAVING: Duration = Duration::from_millis(50);
/// How many pumps of one stream may die before the recorder carries it itself.
const PUMPS_AT_MOST: u32 = 10_000;

/// Where a copy of what the command prints can be read.
#[derive(Debug)]
pub enum LogSource {
    /// The read end of a pipe that the pump copies into; end of file when the stream is over. What the command wrote
    /// may not have come so far: `upstream` tells.
    Pipe { stream: Stream, fd: OwnedFd, upstream: Upstream },
    /// The stream is a regular file: followed from `offset`, never written.
    File { stream: Stream, file: File, offset: u64 },
    /// The stream goes where nobody can look (closed, /dev/null…).
    Unseen { stream: Stream, why: String },
}

impl LogSource {
    /// The stream that it is a copy of.
    pub fn stream(&self) -> Stream {
        match self {
            LogSource::Pipe { stream, .. } | LogSource::File { stream, .. } | LogSource::Unseen { stream, .. } => {
                *stream
            }
        }
    }
}

/// The way from the command to a log pipe. Does not keep it open; one that is gone holds nothing.
#[derive(Clone, Debug, Default)]
pub struct Upstream(Weak<Ends>);

impl Upstream {
    /// Whether all that the command wrote so far has come to the log pipe, or never will.
    pub fn is_empty(&self) -> bool {
        self.0.upgrade().is_none_or(|ends| ends.is_logged())
    }
}

/// The command's outputs, prepared before it starts.
#[derive(Debug, Default)]
pub struct Outputs {
    sources: Vec<LogSource>,
    interposed: Vec<Interposed>,
    /// Whether standard error is interposed, and standard output with it or a file.
    one_terminal: bool,
    /// What the command gets as its standard output and standard error; `None`: what the profiler has.
    given: [Option<OwnedFd>; 2],
    /// Which processes are the command's: the pumps are not among them.
    tree: Option<TreeView>,
    /// Started with the pumps, so that nothing which is opened for the command later is inherited by it.
    witness: Option<Witness>,
    /// Processes of the profiler's that are no part of the launch, started by somebody else.
    others: Vec<Pid>,
    /// What the pumps, the witness and the others take.
    helpers: Helpers,
}

/// A stream that goes through a pump.
#[derive(Debug)]
struct Interposed {
    /// `None` once the stream is over: the recorder's own copies of its ends must be closed too.
    ends: Option<Arc<Ends>>,
    bearer: Bearer,
    pumps: u32,
    terminal: bool,
    /// The terminal's size as it was last copied.
    size: Option<libc::winsize>,
    /// The modes that the command gave its terminal, as they were last copied.
    modes: Option<Modes>,
    /// What the log had missed when the stream was over.
    lost: u64,
}

/// Who carries a stream.
#[derive(Debug)]
enum Bearer {
    Process(Pid),
    /// Where no process could be started: better so than not at all.
    Thread(JoinHandle<Outcome>),
    Nobody,
}

/// What is done with a stream.
enum Kind {
    Unseen(String),
    File,
    Pipe,
    Socket,
    Terminal,
}

impl Outputs {
    /// Looks at standard output and standard error, and starts the pump where one is needed.
    ///
    /// `argv`: the command that it is for. Blocks the signals that will be forwarded, as [`super::signals::hold`] does: call it before other threads start.
    pub fn prepare(argv: &[OsString]) -> io::Result<Outputs> {
        super::signals::hold();
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let (out, err) = (stdout.as_fd(), stderr.as_fd());
        // Without it a signal to the whole group comes to the command twice.
        let mut outputs = Outputs { witness: Witness::start().ok(), ..Outputs::default() };
        if are_one(out, err) {
            outputs.take(Stream::Both, &[0, 1], out, argv);
        } else {
            outputs.take(Stream::Stdout, &[0], out, argv);
            outputs.take(Stream::Stderr, &[1], err, argv);
        }
        Ok(outputs)
    }

    /// Decides about one stream. What cannot be interposed is passed on as it is: a log is not worth a launch.
    fn take(&mut self, stream: Stream, targets: &[usize], fd: BorrowedFd<'_>, argv: &[OsString]) {
        let source = match kind_of(fd) {
            Kind::Unseen(why) => LogSource::Unseen { stream, why },
            Kind::Terminal if needs_terminal(argv) => {
                let why = "an interactive shell or a pager needs the terminal itself".into();
                LogSource::Unseen { stream, why }
            }
            Kind::File => follow(stream, fd)
                .unwrap_or_else(|error| LogSource::Unseen { stream, why: format!("the file cannot be read: {error}") }),
            kind => match self.interpose(stream, targets, fd, &kind) {
                Ok(source) => source,
                Err(error) => {
                    targets.iter().for_each(|target| self.given[*target] = None);
                    LogSource::Unseen { stream, why: format!("cannot be interposed: {error}") }
                }
            },
        };
        self.one_terminal = match (&source, stream) {
            (LogSource::Pipe { .. }, Stream::Both) => true,
            (LogSource::File { .. }, Stream::Stdout) => true,
            (LogSource::Pipe { .. }, Stream::Stderr) => self.one_terminal,
            _ => false,
        };
        self.sources.push(source);
    }

    fn interpose(
        &mut self,
        stream: Stream,
        targets: &[usize],
        fd: BorrowedFd<'_>,
        kind: &Kind,
    ) -> io::Result<LogSource> {
        let (log_read, log_write) = large_pipe()?;
        let terminal = matches!(kind, Kind::Terminal);
        let (source, given) = if terminal { pty_like(fd)? } else { large_pipe()? };
        let destination = fd.try_clone_to_owned()?;
        let ends = Ends { source, relay: large_pipe()?, destination, log: Some(log_write), page: SharedPage::new()? };
        let ends = Arc::new(ends);
        let upstream = Upstream(Arc::downgrade(&ends));
        for target in targets {
            self.given[*target] = Some(given.try_clone()?);
        }
        let size = window_size(ends.destination.as_fd());
        let modes = Modes::of(ends.destination.as_fd(), ends.source.as_fd()).ok().filter(|_| terminal);
        let mut interposed =
            Interposed { ends: Some(ends), bearer: Bearer::Nobody, pumps: 0, terminal, size, modes, lost: 0 };
        interposed.start_pump()?;
        self.interposed.push(interposed);
        Ok(LogSource::Pipe { stream, fd: log_read, upstream })
    }

    /// The places where the copies can be read; each is given once.
    pub fn take_sources(&mut self) -> Vec<LogSource> {
        std::mem::take(&mut self.sources)
    }

    /// What the command is to have as standard output (0) or standard error (1). To be called once each; what is left
    /// here would keep the stream from ever ending.
    pub(super) fn give(&mut self, target: usize) -> Stdio {
        self.given.get_mut(target).and_then(Option::take).map_or_else(Stdio::inherit, Stdio::from)
    }

    /// Keeps the launch's own processes, also those that will be started later, out of the command's tree.
    pub fn keep_out_of(&mut self, tree: TreeView) {
        self.tree = Some(tree);
        self.leave_own_out();
    }

    /// Takes in a process that somebody else of the profiler's started before the command: it is none of the tree.
    pub fn adopt(&mut self, pid: Pid) {
        self.others.push(pid);
    }

    /// What the launch's own processes take, those included that will be started later.
    pub fn helpers(&self) -> Helpers {
        self.helpers.clone()
    }

    fn leave_own_out(&self) {
        if let Some(tree) = &self.tree {
            let witness = self.witness.as_ref().map(Witness::pid);
            self.pumps().chain(witness).chain(self.others.iter().copied()).for_each(|pid| {
                tree.exclude(pid);
                self.helpers.take_in(pid);
            });
        }
    }

    /// The pumps that are processes now.
    fn pumps(&self) -> impl Iterator<Item = Pid> + '_ {
        self.interposed.iter().filter_map(|stream| match stream.bearer {
            Bearer::Process(pid) => Some(pid),
            _ => None,
        })
    }

    /// Who says which signals came to the whole group.
    pub(super) fn witness(&mut self) -> Option<&mut Witness> {
        self.witness.as_mut()
    }

    /// Whether a process is a pump, the witness or another of the profiler's, and so none of the command's.
    pub(super) fn is_own(&self, pid: Pid) -> bool {
        self.witness.as_ref().is_some_and(|witness| witness.pid() == pid)
            || self.is_pump(pid)
            || self.others.contains(&pid)
    }

    fn is_pump(&self, pid: Pid) -> bool {
        self.interposed.iter().any(|stream| matches!(stream.bearer, Bearer::Process(pump) if pump == pid))
    }

    /// Hears of the end of one of these processes, which was reaped. After a pump's end closes the stream, or starts
    /// another pump that goes on.
    pub(super) fn own_ended(&mut self, death: Death) {
        self.helpers.ended(death.pid);
        self.witness.take_if(|witness| witness.pid() == death.pid);
        self.others.retain(|other| *other != death.pid);
        for stream in &mut self.interposed {
            if matches!(stream.bearer, Bearer::Process(pump) if pump == death.pid) {
                stream.bearer = Bearer::Nobody;
                stream.go_on(pump::outcome_of(death.code));
            }
        }
        self.leave_own_out();
    }

    /// Looks after pumps that are not processes; says whether there are any.
    pub(super) fn tend_threads(&mut self) -> bool {
        let mut any = false;
        for stream in &mut self.interposed {
            match std::mem::replace(&mut stream.bearer, Bearer::Nobody) {
                Bearer::Thread(thread) if thread.is_finished() => {
                    stream.go_on(Some(thread.join().unwrap_or(Outcome::Refused)));
                }
                other => stream.bearer = other,
            }
            any |= matches!(stream.bearer, Bearer::Thread(_));
        }
        any
    }

    /// Whether a stream is a terminal, which has a size.
    pub(super) fn has_terminal(&self) -> bool {
        self.interposed.iter().any(|stream| stream.terminal && stream.ends.is_some())
    }

    /// Copies the size of each terminal to the pty that stands for it, where it has changed; says whether one has.
    /// A size that the command itself gave to its output is left alone until then.
    pub(super) fn copy_window_size(&mut self) -> bool {
        let mut changed = false;
        for stream in self.interposed.iter_mut().filter(|stream| stream.terminal) {
            let Some(ends) = &stream.ends else { continue };
            let size = window_size(ends.destination.as_fd());
            if size != stream.size {
                stream.size = size;
                changed |= size.is_some_and(|size| set_window_size(ends.source.as_fd(), &size).is_ok());
            }
        }
        changed
    }

    /// Copies the modes that the command gave each pty to the terminal that it stands for, where they have changed;
    /// where `again`, all that it ever changed. `may` says whether the command may set that terminal's modes now; what
    /// it may not waits.
    pub(super) fn copy_modes(&mut self, again: bool, may: impl Fn(BorrowedFd<'_>) -> bool) {
        for stream in &mut self.interposed {
            let (Some(ends), Some(modes)) = (&stream.ends, &mut stream.modes) else { continue };
            let (terminal, master) = (ends.destination.as_fd(), ends.source.as_fd());
            if !(again || modes.have_changed(master)) || !may(terminal) {
                continue;
            }
            if again {
                modes.copy_again(terminal, master);
            } else {
                modes.copy(terminal, master);
            }
        }
    }

    /// The terminal that the caller gave, where one of the streams is one.
    pub(super) fn terminal(&self) -> Option<BorrowedFd<'_>> {
        let stream = self.interposed.iter().find(|stream| stream.terminal)?;
        Some(stream.ends.as_ref()?.destination.as_fd())
    }

    /// A line on the terminal while the command prints nothing; `None` where both of its streams do not go to one terminal,
    /// through one pump, unless standard output is a file.
    pub fn live_line(&self) -> Option<LiveLine> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let [stream] = &self.interposed[..] else { return None };
        if !stream.terminal || !self.one_terminal || is_dumb {
            return None;
        }
        let ends = stream.ends.as_ref()?;
        LiveLine::of(ends.destination.as_fd(), ends.page.as_fd()).ok()
    }

    /// Waits until all that the command printed so far has been passed on, or `limit` is over; says whether it has.
    ///
    /// Goes on looking after the pumps meanwhile.
    pub fn drain(&mut self, limit: Duration) -> bool {
        let begun = Instant::now();
        let mut nap = Duration::from_micros(200);
        loop {
            self.reap_pumps();
            self.tend_threads();
            let delivered = self.interposed.iter().all(Interposed::is_delivered);
            // A pump whose stream is over ends by itself at once: it is reaped here, or init would have to do it.
            let leaving = self.interposed.iter().any(Interposed::is_over);
            let limit = if delivered { limit.min(LEAVING) } else { limit };
            let left = limit.saturating_sub(begun.elapsed());
            if delivered && (!leaving || left.is_zero()) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
            // Nothing tells when somebody else's reader makes room: look again, soon at first.
            std::thread::sleep(nap.min(left));
            nap = (nap * 2).min(Duration::from_millis(5));
        }
    }

    /// Bytes that the command printed and that reached their destination, but not the log, because its reader did not
    /// keep up.
    pub fn log_bytes_lost(&self) -> u64 {
        self.interposed
            .iter()
            .map(|stream| stream.ends.as_ref().map_or(stream.lost, |ends| ends.log_bytes_lost()))
            .sum()
    }

    fn reap_pumps(&mut self) {
        for pid in self.pumps().collect::<Vec<_>>() {
            self.helpers.read(pid);
            match reap(pid, false) {
                Ok(None) => {}
                Ok(Some(death)) => self.own_ended(death),
                // Reaped by somebody else: how it ended is unknown, so another one looks.
                Err(_) => self.own_ended(Death { pid, code: None, signal: None }),
            }
        }
    }
}

impl Interposed {
    fn is_delivered(&self) -> bool {
        self.ends.as_ref().is_none_or(|ends| ends.is_delivered())
    }

    /// Whether nobody can write to it any more, though its pump has not ended yet.
    fn is_over(&self) -> bool {
        self.ends.as_ref().is_some_and(|ends| ends.is_over())
    }

    /// After the end of a pump: what it said, or `None` if it was killed.
    fn go_on(&mut self, outcome: Option<Outcome>) {
        if outcome.is_none() && self.start_pump().is_ok() {
            return;
        }
        self.lost = self.ends.as_ref().map_or(self.lost, |ends| ends.log_bytes_lost());
        self.ends = None;
    }

    fn start_pump(&mut self) -> io::Result<()> {
        let Some(ends) = &self.ends else { return Ok(()) };
        self.pumps += 1;
        if self.pumps <= PUMPS_AT_MOST
            && let Ok(pid) = pump::spawn(ends)
        {
            self.bearer = Bearer::Process(pid);
            return Ok(());
        }
        let ends = ends.try_clone()?;
        let thread = std::thread::Builder::new().name(pump::NAME.into()).spawn(move || pump::carry(ends))?;
        self.bearer = Bearer::Thread(thread);
        Ok(())
    }
}

/// Whether a command takes its standard output or error for the terminal that it reads keys from or whose foreground
/// group it changes: a shell that is given no script, or a pager.
fn needs_terminal(argv: &[OsString]) -> bool {
    let Some((program, arguments)) = argv.split_first() else { return false };
    let mut arguments = arguments.iter().map(|argument| argument.as_encoded_bytes());
    match Path::new(program).file_name().and_then(OsStr::to_str) {
        // Long options of shells are about their start-up files; of the short ones `c` brings a script.
        Some("sh" | "bash" | "dash" | "zsh" | "ksh" | "mksh" | "fish") => arguments
            .all(|argument| argument.starts_with(b"-") && (argument.starts_with(b"--") || !argument.contains(&b'c'))),
        Some("less" | "more" | "most" | "man") => true,
        _ => false,
    }
}

/// What kind of thing a stream is.
fn kind_of(fd: BorrowedFd<'_>) -> Kind {
    if startup::given().was_closed(fd.as_raw_fd()) {
        return Kind::Unseen("closed".into());
    }
    let stat = match fstat(fd) {
        Ok(stat) => stat,
        Err(error) => return Kind::Unseen(format!("cannot be looked at: {error}")),
    };
    match type_of(&stat) {
        SFlag::S_IFREG => Kind::File,
        SFlag::S_IFIFO => Kind::Pipe,
        // A datagram is one write; a pipe on the way would make one of several.
        SFlag::S_IFSOCK => match getsockopt(&fd, sockopt::SockType) {
            Ok(SockType::Stream) => Kind::Socket,
            _ => Kind::Unseen("a socket that is no byte stream".into()),
        },
        SFlag::S_IFCHR if isatty(fd).unwrap_or(false) => Kind::Terminal,
        SFlag::S_IFCHR => Kind::Unseen("a device, such as /dev/null".into()),
        _ => Kind::Unseen("neither a file, a pipe, a socket nor a terminal".into()),
    }
}

fn type_of(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Whether two descriptors lead to one and the same file, pipe, socket or terminal, opened once or twice.
fn are_one(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> bool {
    if let (Some(a), Some(b)) = (terminal_device(a), terminal_device(b)) {
        return a == b;
    }
    match (fstat(a), fstat(b)) {
        (Ok(a), Ok(b)) => {
            type_of(&a) == type_of(&b) && type_of(&a) != SFlag::S_IFCHR && (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
        }
        _ => false,
    }
}

/// A regular file, opened once more for reading. The place is where the command will write first.
fn follow(stream: Stream, fd: BorrowedFd<'_>) -> io::Result<LogSource> {
    let file = File::open(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    let appends = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL)?).contains(OFlag::O_APPEND);
    let offset = if appends { file.metadata()?.len() } else { lseek(fd, 0, Whence::SeekCur)? as u64 };
    Ok(LogSource::File { stream, file, offset })
}

/// A pipe, read end first, as large as allowed.
fn large_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    // Refused beyond /proc/sys/fs/pipe-max-size and pipe-user-pages-soft: then it is of the usual size.
    let _ = fcntl(&write, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
    Ok((read, write))
}

/// A pty that looks like a given terminal, master first. Its slave is nobody's controlling terminal: the command keeps
/// the real one, with its keyboard and its job control. Output passes it unchanged, for the real terminal does what is
/// to be done to it.
fn pty_like(terminal: BorrowedFd<'_>) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let master = nix::pty::posix_openpt(flags)?;
    nix::pty::unlockpt(&master)?;
    let slave = match pty_slave(master.as_fd()) {
        Ok(slave) => slave,
        Err(_) => nix::fcntl::open(
            nix::pty::ptsname_r(&master)?.as_str(),
            OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC,
            nix::sys::stat::Mode::empty(),
        )?,
    };
    let mut modes = tcgetattr(terminal)?;
    modes.output_flags.remove(OutputFlags::OPOST);
    tcsetattr(&slave, SetArg::TCSANOW, &modes)?;
    if let Some(size) = window_size(terminal) {
        set_window_size(master.as_fd(), &size)?;
    }
    Ok((master.into(), slave))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    #[test]
    fn one_pipe_is_one_however_often_it_is_opened() {
        let (read, write) = large_pipe().unwrap();
        let (_other_read, other) = large_pipe().unwrap();
        let again = File::options().write(true).open(format!("/proc/self/fd/{}", write.as_raw_fd())).unwrap();
        assert!(are_one(write.as_fd(), again.as_fd()));
        assert!(!are_one(write.as_fd(), other.as_fd()));
        drop(read);
    }

    #[test]
    fn a_file_is_followed_from_where_the_command_writes() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"before").unwrap();
        file.as_file_mut().seek(io::SeekFrom::Start(2)).unwrap();
        let LogSource::File { offset, .. } = follow(Stream::Stdout, file.as_file().as_fd()).unwrap() else { panic!() };
        assert_eq!(offset, 2);
        let appending = File::options().append(true).open(file.path()).unwrap();
        let LogSource::File { offset, .. } = follow(Stream::Stdout, appending.as_fd()).unwrap() else { panic!() };
        assert_eq!(offset, 6);
    }

    #[test]
    fn only_what_asks_its_output_for_keys_has_the_terminal_itself() {
        let needs = |words: &[&str]| needs_terminal(&words.iter().map(OsString::from).collect::<Vec<_>>());
        for terminal in [&["/bin/bash"][..], &["bash", "--norc", "-i"], &["zsh", "-l"], &["less", "x"]] {
            assert!(needs(terminal), "{terminal:?}");
        }
        for log in
            [&["./start.sh"][..], &["bash", "-c", "true"], &["sh", "start.sh"], &["bash", "-lc", "x"], &["vllm"], &[]]
        {
            assert!(!needs(log), "{log:?}");
        }
    }

    #[test]
    fn a_datagram_socket_is_left_alone() {
        use nix::sys::socket::{AddressFamily, SockFlag, socketpair};
        let pair = |kind| socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let (datagram, _peer) = pair(SockType::Datagram);
        assert!(matches!(kind_of(datagram.as_fd()), Kind::Unseen(_)));
        let (stream, _peer) = pair(SockType::Stream);
        assert!(matches!(kind_of(stream.as_fd()), Kind::Socket));
    }

    #[test]
    fn a_pty_passes_bytes_unchanged_and_has_the_size() {
        let real = nix::pty::posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
        nix::pty::unlockpt(&real).unwrap();
        let terminal = pty_slave(real.as_fd()).unwrap();
        let size = libc::winsize { ws_row: 7, ws_col: 33, ws_xpixel: 0, ws_ypixel: 0 };
        set_window_size(terminal.as_fd(), &size).unwrap();
        let (master, slave) = pty_like(terminal.as_fd()).unwrap();
        assert_eq!(window_size(slave.as_fd()), Some(size));
        nix::unistd::write(&slave, b"a\nb\tc").unwrap();
        let mut fds = [nix::poll::PollFd::new(master.as_fd(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, 5000u16).unwrap();
        let mut buffer = [0; 64];
        let length = nix::unistd::read(&master, &mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"a\nb\tc");
    }
}
