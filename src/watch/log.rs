//! Reads the copies of the command's output and splits them into lines.
//!
//! A line is what stands between two line ends; a prompt or a progress report without one is not a line until it is
//! ended or its stream is. Memory is bounded whatever is printed: of a long line the first [`LONGEST_LINE`] bytes are
//! kept, and of lines that come faster than they are taken those that fit in [`MOST_QUEUED`]. A pipe is then read on and
//! its lines dropped, since a full pipe would hold the pump up; a file waits.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use sha2::{Digest, Sha256};

use super::ending::Ending;
use super::{Budget, Line, LineEnd, Observed, Printed, QueuedLine, Seen, TICK_MS, TICK_NS, name_of, unseen};
use crate::artifact::hexadecimal;
use crate::clock::Mono;
use crate::event::{Stream, What};
use crate::launch::{LogSource, Upstream};

/// Longest piece of a line that is kept, in bytes.
pub const LONGEST_LINE: usize = 64 * 1024;

/// How much of one source may be on its way to the recorder, in bytes: the lines' own, and 192 a line for what carries them.
pub const MOST_QUEUED: usize = 32 << 20;

/// What a line on its way takes beside its own bytes: itself, its place in the channel, the allocator's part.
const QUEUED_LINE: usize = 192;

/// Bytes that one read asks for.
const READ: usize = 128 * 1024;

/// How long losses are added up before they are told of again: at the limit lines are lost and kept by turns.
const BETWEEN_LOSSES: Duration = Duration::from_secs(1);

/// How long [`LogWatch::finish`] reads on in a stream that somebody keeps writing to.
const LONGEST_FINISH: Duration = Duration::from_secs(2);

/// Starts one thread for a source; it ends at the stream's end, or when [`LogWatch::finish`] is called.
///
/// A source that cannot be seen has no thread: that it cannot is sent at once.
///
/// # Errors
/// eventfd(2), inotify(7) or the thread could not be had.
pub fn watch(source: LogSource, sender: Sender<Seen>) -> std::io::Result<LogWatch> {
    let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?);
    let all = Arc::new(Mutex::new(None));
    let start = |stream: Stream, run: Box<dyn FnOnce(&mut Follower) + Send>| {
        let mut follower = Follower {
            stream,
            stop: stop.clone(),
            sender: sender.clone(),
            splitter: Splitter::default(),
            budget: Budget::new(MOST_QUEUED),
            lost: (0, 0),
            told_lost: None,
            deaf: false,
            silent: true,
            printed: Sha256::new(),
            printed_bytes: 0,
            all: Arc::clone(&all),
        };
        std::thread::Builder::new().name(format!("log {stream:?}").to_lowercase()).spawn(move || run(&mut follower))
    };
    let thread = match source {
        LogSource::Pipe { stream, fd, upstream } => {
            let pipe = File::from(fd);
            let empty = emptied(&pipe, &upstream);
            Some(start(stream, Box::new(move |follower| follower.follow_pipe(pipe, &upstream, empty)))?)
        }
        LogSource::File { stream, file, offset } => {
            let asked = Mono::now();
            let changes = changes_of(&file).ok();
            let empty = file.metadata().is_ok_and(|metadata| metadata.len() <= offset).then_some(asked);
            Some(start(stream, Box::new(move |follower| follower.follow_file(&file, offset, empty, changes)))?)
        }
        LogSource::Unseen { stream, why } => {
            // Nobody listening any more is no error of the source's.
            let _ = sender.send(Seen {
                at: Mono::now(),
                uncertainty_ns: Some(0),
                what: Observed::Event(unseen(stream, &why)),
            });
            None
        }
    };
    Ok(LogWatch { ending: Ending::of(stop, thread), all })
}

/// Tells when a file is written to. Without it (inotify watches are limited per user, and a network filesystem's other
/// writers go unseen) the file is looked at once a tick.
fn changes_of(file: &File) -> nix::Result<Inotify> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    inotify.add_watch(path.as_str(), AddWatchFlags::IN_MODIFY)?;
    Ok(inotify)
}

/// A log watcher's thread.
pub struct LogWatch {
    ending: Ending,
    all: Arc<Mutex<Option<Printed>>>,
}

impl LogWatch {
    /// Reads what is there now to its end, then ends the thread: for after the command's exit. What others still write
    /// to the stream meanwhile is read for 2 s at most.
    ///
    /// What came through a pipe has a digest, where it was read to its end; of a file nobody knows what is the launch's.
    pub fn finish(self) -> Option<Printed> {
        self.ending.finish();
        self.all.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What a wait for more output ended with.
enum Waited {
    Ready,
    Stop,
    /// Nothing came while it was waited for.
    Quiet,
    /// Nothing is known: the wait itself failed.
    Again,
}

struct Follower {
    stream: Stream,
    stop: Arc<EventFd>,
    sender: Sender<Seen>,
    splitter: Splitter,
    budget: Budget,
    /// Lines and bytes dropped and not told of yet.
    lost: (u64, u64),
    /// When such a loss was told of last.
    told_lost: Option<Instant>,
    /// Nobody takes what is sent any more.
    deaf: bool,
    /// Nothing was printed yet.
    silent: bool,
    /// Of every byte of a pipe.
    printed: Sha256,
    printed_bytes: u64,
    /// Where the digest is given once a pipe was read to its end.
    all: Arc<Mutex<Option<Printed>>>,
}

impl Follower {
    /// Waits until there is something to do, so many milliseconds at most.
    fn wait(&self, source: Option<BorrowedFd>, most_ms: u16) -> Waited {
        let mut fds = vec![PollFd::new(self.stop.as_fd(), PollFlags::POLLIN)];
        fds.extend(source.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        match poll(&mut fds, most_ms) {
            Ok(0) => Waited::Quiet,
            Err(Errno::EINTR) => Waited::Again,
            Ok(_) if fds[0].any() == Some(true) => Waited::Stop,
            Ok(_) => Waited::Ready,
            // Out of memory in the kernel: not to be met with a loop that asks again at once.
            Err(_) => {
                std::thread::sleep(Duration::from_nanos(TICK_NS));
                Waited::Again
            }
        }
    }

    /// A pipe has one reader, this one, so what poll(2) says is there can be read without blocking. That there is
    /// nothing says little of when the next line was written: on its way here it may wait for a processor, or behind a
    /// reader of the command's output who takes his time. So the whole way is asked, and again soon while it is not
    /// empty.
    fn follow_pipe(&mut self, mut pipe: File, upstream: &Upstream, mut empty: Option<Mono>) {
        let mut buffer = vec![0; READ];
        let mut most_ms = TICK_MS;
        while !self.deaf {
            match self.wait(Some(pipe.as_fd()), most_ms) {
                Waited::Quiet => {
                    if most_ms == TICK_MS {
                        self.quiet();
                    }
                    most_ms = (most_ms * 2).min(TICK_MS);
                }
                Waited::Again => {}
                Waited::Ready => {
                    if !self.read_pipe(&mut pipe, &mut buffer, empty) {
                        self.read_all();
                        break;
                    }
                    most_ms = 1;
                }
                Waited::Stop => {
                    let deadline = Instant::now() + LONGEST_FINISH;
                    let mut ended = false;
                    while !ended && is_readable(&pipe) && Instant::now() < deadline {
                        ended = !self.read_pipe(&mut pipe, &mut buffer, empty);
                    }
                    if ended || emptied(&pipe, upstream).is_some() {
                        self.read_all();
                    }
                    break;
                }
            }
            if let Some(now) = emptied(&pipe, upstream) {
                empty = Some(now);
                most_ms = TICK_MS;
            }
        }
        self.over(empty);
    }

    /// A pipe was read to its end.
    fn read_all(&self) {
        let sha256 = hexadecimal(&self.printed.clone().finalize());
        let printed = Printed { stream: self.stream, bytes: self.printed_bytes, sha256 };
        *self.all.lock().unwrap_or_else(PoisonError::into_inner) = Some(printed);
    }

    /// Reads once; false at the end of the stream.
    fn read_pipe(&mut self, pipe: &mut File, buffer: &mut [u8], empty: Option<Mono>) -> bool {
        match pipe.read(buffer) {
            Ok(0) => false,
            Ok(length) => {
                self.printed.update(&buffer[..length]);
                self.printed_bytes += length as u64;
                self.take(&buffer[..length], empty, false);
                true
            }
            Err(error) => matches!(error.kind(), std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock),
        }
    }

    /// A file has no end while somebody may write to it; it is followed until told to stop. When it has become shorter
    /// than what was read it is read from its start. One that was cut and has grown beyond that between two looks
    /// cannot be told from one that grew.
    fn follow_file(&mut self, file: &File, mut offset: u64, mut empty: Option<Mono>, changes: Option<Inotify>) {
        let mut buffer = vec![0; READ];
        let mut end = None;
        let mut deadline = None;
        while !self.deaf {
            let before = Mono::now();
            let size = file.metadata().map(|metadata| metadata.len());
            if let Ok(size) = size
                && size < offset
            {
                self.over(empty);
                let text = format!(
                    "the file of {} was cut to {size} bytes: it is read again from its start",
                    name_of(self.stream)
                );
                self.send(
                    Mono::now(),
                    empty.map(|empty| Mono::now().since(empty)),
                    Observed::Event(What::warning(text)),
                );
                offset = 0;
            }
            let limit = end.map_or(READ as u64, |end: u64| end.saturating_sub(offset).min(READ as u64)) as usize;
            let length = match file.read_at(&mut buffer[..limit], offset) {
                Ok(length) => length,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let text = format!("the file of {} cannot be read any more: {error}", name_of(self.stream));
                    self.send(Mono::now(), None, Observed::Event(What::warning(text)));
                    break;
                }
            };
            if length > 0 {
                self.take(&buffer[..length], empty, end.is_none());
                offset += length as u64;
            }
            if length < READ {
                empty = Some(before);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) || (end.is_some() && length == 0) {
                break;
            }
            if end.is_none() && length == READ && self.is_stopped() {
                // Far behind, it would hear of it only when it has caught up.
                end = Some(file.metadata().map_or(offset, |metadata| metadata.len()));
                deadline = Some(Instant::now() + LONGEST_FINISH);
            }
            if length == READ || end.is_some() {
                continue;
            }
            match self.wait(changes.as_ref().map(|changes| changes.as_fd()), TICK_MS) {
                Waited::Ready => {
                    // One read takes all that happened: equal changes in a row are one to inotify.
                    let _ = changes.as_ref().map(Inotify::read_events);
                }
                Waited::Quiet => {
                    if file.metadata().is_ok_and(|metadata| metadata.len() == offset) {
                        self.quiet();
                    }
                }
                Waited::Again => {}
                Waited::Stop => {
                    end = Some(file.metadata().map_or(offset, |metadata| metadata.len()));
                    deadline = Some(Instant::now() + LONGEST_FINISH);
                }
            }
        }
        self.over(empty);
    }

    /// Splits what was read. All of it came after `empty`, the last moment at which the source is known to have been so.
    fn take(&mut self, bytes: &[u8], empty: Option<Mono>, may_wait: bool) {
        let at = Mono::now();
        if std::mem::take(&mut self.silent) {
            let what = What::FirstOutput { stream: self.stream };
            self.send(at, empty.map(|empty| at.since(empty)), Observed::Event(what));
        }
        let mut splitter = std::mem::take(&mut self.splitter);
        splitter.push(bytes, (at, empty.map(|empty| at.since(empty))), &mut |piece| self.piece(piece, may_wait));
        self.splitter = splitter;
    }

    fn quiet(&mut self) {
        let mut splitter = std::mem::take(&mut self.splitter);
        splitter.quiet(&mut |piece| self.piece(piece, false));
        self.splitter = splitter;
    }

    /// The stream is over: what stands without an end is a line too.
    fn over(&mut self, empty: Option<Mono>) {
        let at = Mono::now();
        let mut splitter = std::mem::take(&mut self.splitter);
        splitter.over((at, empty.map(|empty| at.since(empty))), &mut |piece| self.piece(piece, false));
        self.tell_lost();
    }

    fn piece(&mut self, piece: Piece, may_wait: bool) {
        let Piece { bytes, end, time: (at, uncertainty_ns) } = piece;
        let size = bytes.len() + QUEUED_LINE;
        let mut permit = self.budget.take(size);
        while permit.is_none() && may_wait && !self.deaf && !self.is_stopped() {
            self.budget.wait();
            permit = self.budget.take(size);
        }
        let Some(permit) = permit else {
            self.lost.0 += 1;
            self.lost.1 += bytes.len() as u64;
            return;
        };
        if self.told_lost.is_none_or(|told| told.elapsed() >= BETWEEN_LOSSES) {
            self.tell_lost();
        }
        let line = Line { stream: self.stream, bytes, end };
        self.send(at, uncertainty_ns, Observed::Line(QueuedLine { line, _permit: permit }));
    }

    fn is_stopped(&self) -> bool {
        let mut fds = [PollFd::new(self.stop.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, 0u8).is_ok_and(|ready| ready > 0)
    }

    fn tell_lost(&mut self) {
        let (lines, bytes) = std::mem::take(&mut self.lost);
        if lines > 0 {
            self.told_lost = Some(Instant::now());
            self.send(Mono::now(), None, Observed::Lost { stream: self.stream, lines, bytes });
        }
    }

    fn send(&mut self, at: Mono, uncertainty_ns: Option<u64>, what: Observed) {
        self.deaf |= self.sender.send(Seen { at, uncertainty_ns, what }).is_err();
    }
}

/// The time, if all that the command wrote up to it has been read here. The way is asked from its beginning: what has
/// left one part of it is in the next.
fn emptied(pipe: &File, upstream: &Upstream) -> Option<Mono> {
    let asked = Mono::now();
    (upstream.is_empty() && !is_readable(pipe)).then_some(asked)
}

fn is_readable(pipe: &File) -> bool {
    let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, 0u8).is_ok_and(|ready| ready > 0)
}

/// Output that was saved, split into lines as it is when it is printed.
pub struct SavedOutput {
    stream: Stream,
    splitter: Splitter,
}

impl SavedOutput {
    /// Of this stream, or of both.
    pub fn new(stream: Stream) -> SavedOutput {
        SavedOutput { stream, splitter: Splitter::default() }
    }

    /// More of it: a piece of one line of the file, its `\n` included where it has one. `number` is the line's own; what
    /// is split off is given out with the number of the line that it ended in.
    pub fn push(&mut self, number: u64, bytes: &[u8], take: &mut impl FnMut(u64, Line)) {
        let stream = self.stream;
        self.splitter.push(bytes, (Mono(number), None), &mut |piece| take(piece.time.0.0, piece.of(stream)));
    }

    /// Its end, in the line with this number.
    pub fn finish(&mut self, number: u64, take: &mut impl FnMut(u64, Line)) {
        let stream = self.stream;
        self.splitter.over((Mono(number), None), &mut |piece| take(piece.time.0.0, piece.of(stream)));
    }
}

/// When a piece was completed, and for how long before it may have been.
type Time = (Mono, Option<u64>);

/// A line, split off.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    bytes: Vec<u8>,
    end: LineEnd,
    time: Time,
}

impl Piece {
    fn of(self, stream: Stream) -> Line {
        Line { stream, bytes: self.bytes, end: self.end }
    }
}

/// Splits a stream into lines, whatever the pieces in which it is read. Keeps [`LONGEST_LINE`] bytes at most.
#[derive(Default)]
struct Splitter {
    /// The line that has no end yet.
    partial: Vec<u8>,
    /// The rest of a line that was too long is being passed over.
    passing: bool,
    /// A line that ended in `\r`, while it is not known whether a `\n` follows.
    returned: Option<Piece>,
    /// The stream went quiet after a `\r`: a `\n` that comes now is the rest of that line end.
    swallow: bool,
}

impl Splitter {
    fn push(&mut self, mut bytes: &[u8], time: Time, emit: &mut impl FnMut(Piece)) {
        if let [first, rest @ ..] = bytes {
            let is_newline = *first == b'\n';
            if let Some(mut piece) = self.returned.take() {
                if is_newline {
                    piece.end = LineEnd::Newline;
                    bytes = rest;
                }
                emit(piece);
            } else if std::mem::take(&mut self.swallow) && is_newline {
                bytes = rest;
            }
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            self.grow(&bytes[..end], time, emit);
            let (ending, next) = match (bytes[end], bytes.get(end + 1)) {
                (b'\n', _) => (Some(LineEnd::Newline), end + 1),
                (_, Some(b'\n')) => (Some(LineEnd::Newline), end + 2),
                (_, Some(_)) => (Some(LineEnd::Return), end + 1),
                (_, None) => (None, end + 1),
            };
            bytes = &bytes[next..];
            if std::mem::take(&mut self.passing) {
                // Already given out as cut.
                self.swallow = ending.is_none();
                continue;
            }
            let mut line = std::mem::take(&mut self.partial);
            line.shrink_to_fit();
            let piece = Piece { bytes: line, end: ending.unwrap_or(LineEnd::Return), time };
            match ending {
                Some(_) => emit(piece),
                None => self.returned = Some(piece),
            }
        }
        self.grow(bytes, time, emit);
    }

    /// More of the line that has no end yet.
    fn grow(&mut self, bytes: &[u8], time: Time, emit: &mut impl FnMut(Piece)) {
        if self.passing {
            return;
        }
        let room = LONGEST_LINE - self.partial.len();
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room {
            self.passing = true;
            emit(Piece { bytes: std::mem::take(&mut self.partial), end: LineEnd::Cut, time });
        }
    }

    /// Nothing came for a while: a `\r` stands alone.
    fn quiet(&mut self, emit: &mut impl FnMut(Piece)) {
        if let Some(piece) = self.returned.take() {
            self.swallow = true;
            emit(piece);
        }
    }

    fn over(&mut self, time: Time, emit: &mut impl FnMut(Piece)) {
        if let Some(piece) = self.returned.take() {
            emit(piece);
        }
        if !self.partial.is_empty() {
            emit(Piece { bytes: std::mem::take(&mut self.partial), end: LineEnd::Eof, time });
        }
        *self = Splitter::default();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Splits `text`, read in pieces of the given lengths (over and over).
    fn split(text: &[u8], lengths: &[usize]) -> Vec<(Vec<u8>, LineEnd)> {
        let mut lines = Vec::new();
        let mut splitter = Splitter::default();
        let mut emit = |piece: Piece| lines.push((piece.bytes, piece.end));
        let (mut rest, mut lengths) = (text, lengths.iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(*lengths.next().unwrap()));
            splitter.push(now, (Mono(0), None), &mut emit);
            rest = later;
        }
        splitter.over((Mono(0), None), &mut emit);
        lines
    }

    #[test]
    fn every_end_is_an_end() {
        use LineEnd::*;
        let line = |text: &str, end| (text.as_bytes().to_vec(), end);
        let expected =
            vec![line("a", Newline), line("b", Newline), line(" 1%", Return), line("", Newline), line("\u{fffd}", Eof)];
        for length in 1..12 {
            assert_eq!(split("a\nb\r\n 1%\r\r\n\u{fffd}".as_bytes(), &[length]), expected);
        }
    }

    #[test]
    fn bytes_that_are_no_text_stay_as_they_are() {
        assert_eq!(
            split(b"\xff\x00\xfe\n\xc3", &[2]),
            [(b"\xff\x00\xfe".to_vec(), LineEnd::Newline), (b"\xc3".to_vec(), LineEnd::Eof)]
        );
    }

    #[test]
    fn a_long_line_is_cut_once_and_takes_no_more_memory() {
        let mut splitter = Splitter::default();
        let mut pieces = Vec::new();
        let block = [b'x'; 8192];
        for _ in 0..256 << 20 >> 13 {
            splitter.push(&block, (Mono(1), None), &mut |piece| pieces.push(piece));
            assert!(splitter.partial.capacity() <= 2 * LONGEST_LINE);
        }
        assert_eq!(pieces.len(), 1);
        splitter.push(b"x\r\nnext\n", (Mono(2), None), &mut |piece| pieces.push(piece));
        assert_eq!((pieces[0].bytes.len(), pieces[0].end), (LONGEST_LINE, LineEnd::Cut));
        assert_eq!((&pieces[1].bytes[..], pieces[1].end), (&b"next"[..], LineEnd::Newline));
        assert_eq!(pieces.len(), 2);
    }

    #[test]
    fn a_line_of_the_longest_length_is_whole() {
        let mut text = vec![b'x'; LONGEST_LINE];
        text.push(b'\n');
        assert_eq!(split(&text, &[1000]), [(vec![b'x'; LONGEST_LINE], LineEnd::Newline)]);
        text.insert(0, b'x');
        assert_eq!(split(&text, &[1000]), [(vec![b'x'; LONGEST_LINE], LineEnd::Cut)]);
    }

    #[test]
    fn a_return_before_a_pause_is_given_out_and_its_newline_is_no_line() {
        let mut splitter = Splitter::default();
        let mut pieces = Vec::new();
        splitter.push(b"50%\r", (Mono(7), Some(3)), &mut |piece| pieces.push(piece));
        assert!(pieces.is_empty());
        splitter.quiet(&mut |piece| pieces.push(piece));
        splitter.push(b"\nnext\n", (Mono(9), Some(0)), &mut |piece| pieces.push(piece));
        let line = |bytes: &[u8], end, time| Piece { bytes: bytes.to_vec(), end, time };
        assert_eq!(
            pieces,
            [line(b"50%", LineEnd::Return, (Mono(7), Some(3))), line(b"next", LineEnd::Newline, (Mono(9), Some(0)))]
        );
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_they_are_read(
            text in prop::collection::vec(prop::sample::select(vec![b'a', b'\n', b'\r', 0xff]), 0..60),
            lengths in prop::collection::vec(1usize..9, 1..6),
        ) {
            let lines = split(&text, &lengths);
            prop_assert_eq!(&lines, &split(&text, &[text.len().max(1)]));
            let kept: usize = lines.iter().map(|(bytes, _)| bytes.len()).sum();
            prop_assert_eq!(kept, text.iter().filter(|byte| !b"\n\r".contains(byte)).count());
        }
    }
}
