//! The output pump: a small process in a session of its own that carries the command's output to where the caller
//! wanted it, and outlives the recorder. Bytes move inside the kernel (tee(2), splice(2)), so that a pump killed at
//! any moment holds none of them.
//!
//! One pump a stream, so that a reader who stalls one stream does not stall the other. It never looks at what it
//! carries, and never lets the copy for the log hold up the stream itself for long.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, SpliceFFlags, splice, tee};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{pipe2, read, write};

use super::line;
use crate::event::Pid;
use crate::sys::process::{SharedPage, adopt, close_all_but, detach, pipe_content};

/// The hidden verb, and the name by which process listings show the process.
pub const NAME: &str = "output-pump";

/// Most bytes moved by one call.
const CHUNK: usize = 1 << 20;
/// Most bytes carried by one step where they must be copied: what could be written twice if a pump is killed between
/// the write and the note of it.
const COPIED_CHUNK: usize = 4096;
/// How long a full log pipe may hold up the stream before the stream goes on without its copy.
const PATIENCE: Duration = Duration::from_millis(50);

/// Exit statuses of the pump's process.
const ENDED: u8 = 0;
const REFUSED: u8 = 3;
const UNUSABLE: u8 = 4;

/// Slots of the shared page.
mod slot {
    /// 1 from before bytes leave the source until they are delivered.
    pub const BUSY: usize = 0;
    /// What the log was last given of the relay, so that a pump that takes over copies no line twice: how many bytes
    /// the relay then held (upper half) and how many of them were copied (lower half).
    pub const LOGGED: usize = 1;
    /// Bytes that the log missed because its reader did not keep up.
    pub const LOST: usize = 2;
    /// 1 from before bytes leave the source until the log has its copy of them, or is not to have one.
    pub const UNLOGGED: usize = 3;
    // The next one is `line`'s.
}

/// Why a pump stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The stream is over: nobody can write to it any more.
    Ended,
    /// The destination takes no more (a pipe without readers, a terminal that is gone); the command is to learn it by
    /// the stream being closed.
    Refused,
}

/// The ends of one stream. The recorder holds them too, so that another pump can take over.
#[derive(Debug)]
pub struct Ends {
    /// Where the command's bytes come from: a pipe's read end, or a pty's master (not blocking).
    pub source: OwnedFd,
    /// Both ends of a pipe on the way. It is filled only when it is empty, so what is still in it tells a pump that
    /// takes over how far the last one came. And the kernel holds a pipe's lock while it writes from it to a terminal
    /// or a socket, which must not be the lock that the command's own writes take.
    pub relay: (OwnedFd, OwnedFd),
    /// Where the caller wanted the bytes.
    pub destination: OwnedFd,
    /// The write end of the pipe that the log is read from.
    pub log: Option<OwnedFd>,
    pub page: SharedPage,
}

impl Ends {
    /// The same ends once more.
    pub fn try_clone(&self) -> io::Result<Ends> {
        Ok(Ends {
            source: self.source.try_clone()?,
            relay: (self.relay.0.try_clone()?, self.relay.1.try_clone()?),
            destination: self.destination.try_clone()?,
            log: self.log.as_ref().map(OwnedFd::try_clone).transpose()?,
            page: SharedPage::open(self.page.as_fd().try_clone_to_owned()?)?,
        })
    }

    /// Whether all that was written so far has reached the destination.
    ///
    /// In this order: what is no longer in the source was taken by a pump that had said before that it is busy. Asking
    /// a pty's master by poll also makes the kernel hand over what it has still queued.
    pub fn is_delivered(&self) -> bool {
        !has_data(self.source.as_fd())
            && self.page.slot(slot::BUSY).load(SeqCst) == 0
            && !has_data(self.relay.0.as_fd())
    }

    /// Whether all that was written so far has been copied to the log, however far it is from its destination. In this
    /// order, for the reason that [`Ends::is_delivered`] gives.
    pub fn is_logged(&self) -> bool {
        !has_data(self.source.as_fd()) && self.page.slot(slot::UNLOGGED).load(SeqCst) == 0
    }

    /// Whether nobody can write to the source any more.
    pub fn is_over(&self) -> bool {
        let mut fds = [PollFd::new(self.source.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO).is_ok()
            && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
    }

    /// Bytes that were delivered and that the log does not have.
    pub fn log_bytes_lost(&self) -> u64 {
        self.page.slot(slot::LOST).load(SeqCst)
    }
}

/// Starts a pump process for these ends.
pub fn spawn(ends: &Ends) -> io::Result<Pid> {
    // By number: source and destination become 0 and 1.
    let extra: [Option<RawFd>; 4] = [
        Some(ends.relay.0.as_raw_fd()),
        Some(ends.relay.1.as_raw_fd()),
        ends.log.as_ref().map(|log| log.as_raw_fd()),
        Some(ends.page.as_fd().as_raw_fd()),
    ];
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).arg(NAME);
    command.args(extra.iter().map(|fd| fd.unwrap_or(-1).to_string()));
    command.env_clear().current_dir("/");
    command.stdin(Stdio::from(ends.source.try_clone()?));
    command.stdout(Stdio::from(ends.destination.try_clone()?));
    command.stderr(Stdio::null());
    detach(&mut command, extra.into_iter().flatten().collect());
    // Reaped by the supervisor, by its pid.
    Ok(command.spawn()?.id() as Pid)
}

/// What the end of a pump process means; `None`: it did not end by its own decision.
pub fn outcome_of(code: Option<i32>) -> Option<Outcome> {
    match code.and_then(|code| u8::try_from(code).ok())? {
        ENDED => Some(Outcome::Ended),
        REFUSED => Some(Outcome::Refused),
        _ => None,
    }
}

/// The pump's process, from the arguments after the verb. Must be dispatched before anything opens a descriptor.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let numbers: Vec<RawFd> = arguments.filter_map(|argument| argument.to_str()?.parse().ok()).collect();
    let [relay_read, relay_write, log, page] = numbers[..] else { return ExitCode::from(UNUSABLE) };
    close_all_but(&numbers);
    // The listing would show `exe` otherwise; only the name is lost if this fails.
    let _ = nix::sys::prctl::set_name(c"output-pump");
    let ends = (|| {
        Some(Ends {
            source: adopt(0)?,
            relay: (adopt(relay_read)?, adopt(relay_write)?),
            destination: adopt(1)?,
            log: adopt(log),
            page: SharedPage::open(adopt(page)?).ok()?,
        })
    })();
    match ends.map(carry) {
        Some(Outcome::Ended) => ExitCode::from(ENDED),
        Some(Outcome::Refused) => ExitCode::from(REFUSED),
        None => ExitCode::from(UNUSABLE),
    }
}

/// Carries the stream until it is over or the destination takes no more.
pub fn carry(ends: Ends) -> Outcome {
    let watch = GoneWatch::of(ends.destination.as_fd());
    let mut pump = Pump { log: ends.log, stalled: false, watch, splices: true, scratch: None, page: &ends.page };
    let destination = ends.destination.as_fd();
    loop {
        let step = if has_data(ends.relay.0.as_fd()) {
            pump.pass(ends.relay.0.as_fd(), destination)
        } else {
            pump.page.slot(slot::LOGGED).store(0, SeqCst);
            pump.wait_for(ends.source.as_fd(), destination)
                .and_then(|()| pump.fill(ends.source.as_fd(), ends.relay.1.as_fd()))
        };
        if let Err(outcome) = step {
            pump.page.slot(slot::UNLOGGED).store(0, SeqCst);
            pump.set_busy(false);
            return outcome;
        }
    }
}

/// How the end of a destination shows without writing to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoneWatch {
    /// It does not: a named pipe can get another reader.
    Never,
    /// An unnamed pipe whose readers are gone, or a terminal or socket that was hung up.
    ByPoll,
}

impl GoneWatch {
    fn of(destination: BorrowedFd<'_>) -> GoneWatch {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", destination.as_raw_fd()));
        let named = |path: &std::path::Path| path.is_absolute() && !nix::unistd::isatty(destination).unwrap_or(false);
        match link {
            Ok(path) if named(&path) => GoneWatch::Never,
            Ok(_) => GoneWatch::ByPoll,
            Err(_) => GoneWatch::Never,
        }
    }
}

/// The state of one pump. Errors of its steps are why it stops.
struct Pump<'a> {
    log: Option<OwnedFd>,
    /// The log pipe was full for longer than the patience: it is tried, but not waited for.
    stalled: bool,
    watch: GoneWatch,
    /// Whether the destination takes spliced pages.
    splices: bool,
    scratch: Option<(File, OwnedFd)>,
    page: &'a SharedPage,
}

impl Pump<'_> {
    fn set_busy(&self, busy: bool) {
        self.page.slot(slot::BUSY).store(busy as u64, SeqCst);
    }

    /// Waits until the source has something, or has ended.
    fn wait_for(&self, source: BorrowedFd<'_>, destination: BorrowedFd<'_>) -> Result<(), Outcome> {
        // The relay is empty.
        self.page.slot(slot::UNLOGGED).store(0, SeqCst);
        self.set_busy(false);
        loop {
            let mut fds = [PollFd::new(source, PollFlags::POLLIN), PollFd::new(destination, PollFlags::empty())];
            let watched = if self.watch == GoneWatch::ByPoll { 2 } else { 1 };
            match poll(&mut fds[..watched], PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                // Without poll the call that moves bytes finds out.
                Err(_) => break,
                Ok(_) => {}
            }
            let gone = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
            if watched == 2 && fds[1].revents().is_some_and(|events| events.intersects(gone)) {
                return Err(Outcome::Refused);
            }
            if fds[0].any().unwrap_or(true) {
                break;
            }
        }
        self.page.slot(slot::UNLOGGED).store(1, SeqCst);
        self.set_busy(true);
        Ok(())
    }

    /// Moves what the source has into the relay, which is empty.
    fn fill(&self, source: BorrowedFd<'_>, relay: BorrowedFd<'_>) -> Result<(), Outcome> {
        loop {
            return match splice(source, None, relay, None, CHUNK, SpliceFFlags::SPLICE_F_NONBLOCK) {
                Ok(0) => Err(Outcome::Ended),
                Ok(_) | Err(Errno::EAGAIN) => Ok(()),
                Err(Errno::EINTR) => continue,
                // Terminals could not be spliced from for a while (Linux 5.10 before some of its updates), and a
                // sandbox may have no such call.
                Err(Errno::EINVAL | Errno::ENOSYS | Errno::EPERM) => self.fill_by_copy(source, relay),
                // EIO: no slave of the pty is open any more.
                Err(_) => Err(Outcome::Ended),
            };
        }
    }

    fn fill_by_copy(&self, source: BorrowedFd<'_>, relay: BorrowedFd<'_>) -> Result<(), Outcome> {
        let mut buffer = [0; COPIED_CHUNK];
        match read(source, &mut buffer) {
            Ok(0) => Err(Outcome::Ended),
            // The relay is empty and holds at least a page: all of it fits at once.
            Ok(length) => write(relay, &buffer[..length]).map(drop).map_err(|_| Outcome::Ended),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            Err(_) => Err(Outcome::Ended),
        }
    }

    /// Passes on what the relay holds, first to the log, then to the destination. At least one byte.
    fn pass(&mut self, relay: BorrowedFd<'_>, destination: BorrowedFd<'_>) -> Result<(), Outcome> {
        self.set_busy(true);
        line::make_room(self.page.slot(line::SLOT), destination);
        let held = pipe_content(relay).max(1);
        let (held_then, copied_then) = unpack(self.page.slot(slot::LOGGED).load(SeqCst));
        // What has left the relay since was copied too; the log is ahead by the rest.
        let mut ahead = copied_then.saturating_sub(held_then.saturating_sub(held)) as usize;
        if ahead == 0 {
            ahead = self.copy_to_log(relay)?;
            self.page.slot(slot::LOGGED).store(pack(held, ahead as u32), SeqCst);
        }
        // What a stalled log does not take now it will never get.
        if ahead == 0 || ahead >= held as usize {
            self.page.slot(slot::UNLOGGED).store(0, SeqCst);
        }
        let most = if ahead == 0 { held as usize } else { ahead };
        let moved = self.carry_some(relay, destination, most)?;
        if ahead == 0 && self.log.is_some() {
            self.page.slot(slot::LOST).fetch_add(moved as u64, SeqCst);
        }
        Ok(())
    }

    /// Copies what the relay holds to the log; says how much, 0 if the log takes none.
    fn copy_to_log(&mut self, relay: BorrowedFd<'_>) -> Result<usize, Outcome> {
        while let Some(log) = &self.log {
            match tee(relay, log, CHUNK, SpliceFFlags::SPLICE_F_NONBLOCK) {
                Ok(0) => return Err(Outcome::Ended),
                Ok(copied) => {
                    self.stalled = false;
                    return Ok(copied);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) if self.stalled => return Ok(0),
                Err(Errno::EAGAIN) => {
                    let patience = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::ZERO);
                    let mut fds = [PollFd::new(log.as_fd(), PollFlags::POLLOUT)];
                    self.stalled = !matches!(poll(&mut fds, patience), Ok(1) | Err(Errno::EINTR));
                }
                // EPIPE: the recorder is gone, and the stream is not.
                Err(_) => self.log = None,
            }
        }
        Ok(0)
    }

    /// Moves up to `most` bytes, which must be there, from a pipe to the destination; at least one.
    fn carry_some(&mut self, head: BorrowedFd<'_>, destination: BorrowedFd<'_>, most: usize) -> Result<usize, Outcome> {
        let mut waited = false;
        loop {
            let moved = if self.splices {
                splice(head, None, destination, None, most, SpliceFFlags::empty())
            } else {
                self.copy_some(head, destination, most)
            };
            match moved {
                Ok(0) => return Err(Outcome::Ended),
                Ok(moved) => return Ok(moved),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    // The caller's descriptor does not block. Where poll and write disagree, do not spin.
                    if waited {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    let mut fds = [PollFd::new(destination, PollFlags::POLLOUT)];
                    let _ = poll(&mut fds, PollTimeout::NONE);
                    waited = true;
                }
                // Opened for appending, a device that takes no pages, a sandbox.
                Err(Errno::EINVAL | Errno::ENOSYS | Errno::EPERM) if self.splices => self.splices = false,
                Err(_) => return Err(Outcome::Refused),
            }
        }
    }

    /// As `carry_some`, by a look at the bytes (tee), a write, and only then their removal from the pipe.
    fn copy_some(&mut self, head: BorrowedFd<'_>, destination: BorrowedFd<'_>, most: usize) -> Result<usize, Errno> {
        if self.scratch.is_none() {
            let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
            self.scratch = Some((File::from(read), write));
        }
        let Some((scratch, scratch_write)) = &self.scratch else { return Err(Errno::EPIPE) };
        let mut buffer = [0; COPIED_CHUNK];
        let most = most.min(COPIED_CHUNK);
        let seen = match tee(head, scratch_write, most, SpliceFFlags::empty()) {
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::EPERM) => {
                return move_some(head, destination, &mut buffer[..most]);
            }
            seen => seen?,
        };
        let mut length = 0;
        while length < seen {
            match read(scratch, &mut buffer[length..seen])? {
                0 => break,
                more => length += more,
            }
        }
        if length == 0 {
            return Ok(0);
        }
        let written = write(destination, &buffer[..length])?;
        let mut removed = 0;
        while removed < written {
            match read(head, &mut buffer[removed..written]) {
                Ok(0) => break,
                Ok(more) => removed += more,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }
}

/// The last resort, where the kernel has none of the calls that move bytes: what was read is written whole.
fn move_some(head: BorrowedFd<'_>, destination: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    let length = read(head, buffer)?;
    let mut written = 0;
    while written < length {
        match write(destination, &buffer[written..length]) {
            Ok(more) => written += more,
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let mut fds = [PollFd::new(destination, PollFlags::POLLOUT)];
                let _ = poll(&mut fds, PollTimeout::NONE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

fn has_data(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok()
        && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN))
}

fn pack(held: u32, copied: u32) -> u64 {
    u64::from(held) << 32 | u64::from(copied)
}

fn unpack(packed: u64) -> (u32, u32) {
    ((packed >> 32) as u32, packed as u32)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, fcntl};
    use std::io::{Read, Write};
    use std::thread::{self, JoinHandle};

    struct Bench {
        /// The command's end; `None` once it has been closed.
        command: Option<File>,
        reader: Option<File>,
        log: Option<File>,
        ends: Ends,
        pump: JoinHandle<Outcome>,
    }

    fn pipe() -> (OwnedFd, OwnedFd) {
        pipe2(OFlag::O_CLOEXEC).unwrap()
    }

    fn bench(destination: Option<OwnedFd>) -> Bench {
        let (source, command) = pipe();
        let (reader, to_reader) = pipe();
        let (log, to_log) = pipe();
        // As large as in a launch: a reader that does not get the CPU for a while must not count as stalled.
        fcntl(&to_log, FcntlArg::F_SETPIPE_SZ(1 << 20)).unwrap();
        let destination = destination.unwrap_or(to_reader);
        let ends = Ends { source, relay: pipe(), destination, log: Some(to_log), page: SharedPage::new().unwrap() };
        let pumped = ends.try_clone().unwrap();
        let pump = thread::spawn(move || carry(pumped));
        Bench { command: Some(command.into()), reader: Some(reader.into()), log: Some(log.into()), ends, pump }
    }

    /// Bytes whose order shows.
    fn pattern(length: u32) -> Vec<u8> {
        (0..length / 4).flat_map(u32::to_le_bytes).collect()
    }

    fn collect(file: Option<File>) -> JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut all = Vec::new();
            file.unwrap().read_to_end(&mut all).unwrap();
            all
        })
    }

    #[test]
    fn destination_and_log_get_the_same() {
        let mut bench = bench(None);
        let (reader, log) = (collect(bench.reader.take()), collect(bench.log.take()));
        bench.command.as_mut().unwrap().write_all(&pattern(3_000_000)).unwrap();
        bench.command = None;
        assert_eq!(bench.pump.join().unwrap(), Outcome::Ended);
        assert!(bench.ends.is_delivered());
        drop(bench.ends);
        assert!(reader.join().unwrap() == pattern(3_000_000));
        assert!(log.join().unwrap() == pattern(3_000_000));
    }

    #[test]
    fn a_log_that_nobody_reads_holds_nothing_up_and_its_loss_is_counted() {
        let mut bench = bench(None);
        let reader = collect(bench.reader.take());
        bench.command.as_mut().unwrap().write_all(&pattern(3_000_000)).unwrap();
        bench.command = None;
        assert_eq!(bench.pump.join().unwrap(), Outcome::Ended);
        let lost = bench.ends.log_bytes_lost();
        drop(bench.ends);
        assert!(reader.join().unwrap() == pattern(3_000_000));
        let kept = collect(bench.log.take()).join().unwrap();
        assert_eq!(kept.len() as u64 + lost, 3_000_000);
        assert!(lost > 0 && kept[..] == pattern(3_000_000)[..kept.len()]);
    }

    #[test]
    fn a_log_whose_reader_is_gone_changes_nothing() {
        let mut bench = bench(None);
        bench.log = None;
        let reader = collect(bench.reader.take());
        bench.command.as_mut().unwrap().write_all(&pattern(1_000_000)).unwrap();
        bench.command = None;
        assert_eq!(bench.pump.join().unwrap(), Outcome::Ended);
        drop(bench.ends);
        assert!(reader.join().unwrap() == pattern(1_000_000));
    }

    #[test]
    fn a_reader_that_leaves_is_noticed_without_a_write() {
        let mut bench = bench(None);
        bench.reader = None;
        assert_eq!(bench.pump.join().unwrap(), Outcome::Refused);
    }

    #[test]
    fn what_cannot_be_spliced_to_is_written_to() {
        // A file opened for appending refuses splice(2), as a terminal opened so does.
        let file = tempfile::NamedTempFile::new().unwrap();
        let appending = File::options().append(true).open(file.path()).unwrap();
        let mut bench = bench(Some(appending.into()));
        let log = collect(bench.log.take());
        bench.command.as_mut().unwrap().write_all(&pattern(300_000)).unwrap();
        bench.command = None;
        assert_eq!(bench.pump.join().unwrap(), Outcome::Ended);
        drop(bench.ends);
        assert!(std::fs::read(file.path()).unwrap() == pattern(300_000));
        assert!(log.join().unwrap() == pattern(300_000));
    }

    #[test]
    fn what_is_not_yet_read_is_not_delivered() {
        let mut bench = bench(None);
        // More than the destination and the relay hold.
        let mut command = bench.command.take().unwrap();
        let writer = thread::spawn(move || command.write_all(&pattern(1_000_000)));
        let log = collect(bench.log.take());
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let held = |file: &Option<File>| pipe_content(file.as_ref().unwrap().as_fd());
        while held(&bench.reader) < 65_536 || pipe_content(bench.ends.source.as_fd()) == 0 {
            assert!(std::time::Instant::now() < deadline);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!bench.ends.is_delivered());
        assert!(!bench.ends.is_logged());
        let reader = collect(bench.reader.take());
        writer.join().unwrap().unwrap();
        assert_eq!(bench.pump.join().unwrap(), Outcome::Ended);
        assert!(bench.ends.is_delivered());
        assert!(bench.ends.is_logged());
        drop(bench.ends);
        assert!(reader.join().unwrap() == pattern(1_000_000));
        assert!(log.join().unwrap() == pattern(1_000_000));
    }

    #[test]
    fn what_a_slow_reader_leaves_is_logged_before_it_is_delivered() {
        let mut bench = bench(None);
        let mut command = bench.command.take().unwrap();
        // The destination holds 64 KiB; the rest waits in the relay.
        command.write_all(&pattern(100_000)).unwrap();
        let log = collect(bench.log.take());
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while !bench.ends.is_logged() {
            assert!(std::time::Instant::now() < deadline);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!bench.ends.is_delivered());
        drop(command);
        let reader = collect(bench.reader.take());
        assert_eq!(bench.pump.join().unwrap(), Outcome::Ended);
        drop(bench.ends);
        assert!(reader.join().unwrap() == pattern(100_000));
        assert!(log.join().unwrap() == pattern(100_000));
    }
}
