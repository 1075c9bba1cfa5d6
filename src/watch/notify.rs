//! The notification socket: sd_notify(3)'s protocol, with `X_STAGE=name` and `BARRIER=1`; and `stagemark mark`, its
//! client.
//!
//! A message counts if its sender is a process of the launch, by the process id that the kernel gives with it. One from
//! elsewhere is refused; one whose sender was gone before that could be told is recorded as unverified. Nothing is
//! dropped silently: where messages come faster than they are taken their senders wait, as they do with any service
//! manager (a Unix datagram socket queues `net.unix.max_dgram_qlen` messages, whatever its buffer's size).

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg, setsockopt, sockopt};

use super::ending::Ending;
use super::{LONGEST_STAGE_NAME, Observed, Seen, is_stage_name};
use crate::clock::Mono;
use crate::event::{Pid, What, text_of};
use crate::sys::socket::{Received, receive};

/// The variable that services know.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// The same socket, for a program that takes NOTIFY_SOCKET out of its environment before it starts others.
pub const STAGEMARK_SOCKET: &str = "STAGEMARK_SOCKET";

/// How long the socket is waited on before it is seen to be empty once more, in milliseconds. Longer than for a log: a
/// sender that cares gives its own time.
const TICK_MS: u16 = 100;

const TICK_NS: u64 = TICK_MS as u64 * 1_000_000;

/// Longest message that is understood, in bytes.
pub const LONGEST_MESSAGE: usize = 64 * 1024;

/// Longest message that is passed on, in bytes.
const LONGEST_FORWARDED: usize = 256 * 1024;

/// How much of a `STATUS=` is kept, in bytes.
const LONGEST_STATUS: usize = 256;

/// Warnings of one kind that are recorded one by one; the rest are counted.
const MOST_WARNINGS: u64 = 16;

/// Messages that may be on their way to the recorder before the watcher waits for it to come after.
const MOST_QUEUED: usize = 4096;

/// How long a service manager is waited for before a message is given up for it.
const LONGEST_FORWARD: i64 = 1;

/// How long [`NotifyWatch::finish`] hears messages that go on coming.
const LONGEST_FINISH: Duration = Duration::from_secs(2);

/// How long [`mark`] waits until it was heard.
const LONGEST_MARK: Duration = Duration::from_secs(5);

/// What a refused sender is told, where it gave a socket as its barrier.
const REFUSED: &[u8] = b"refused";

/// Entries of a folder for temporary files that are looked through for what others left.
const MOST_FORGOTTEN: usize = 10_000;

/// Says of a process whether it is of the launch; `None` if that cannot be told any more.
pub type IsOurs = Box<dyn Fn(Pid) -> Option<bool> + Send>;

/// The socket, bound; messages wait in it until [`Notify::watch`].
pub struct Notify {
    socket: UnixDatagram,
    /// As NOTIFY_SOCKET has it.
    address: OsString,
    /// `None` for an abstract name, which goes with the socket.
    _place: Option<Place>,
    forward: Option<Forward>,
    bound: Mono,
}

/// The directory that the socket lies in, gone with this value.
struct Place {
    directory: PathBuf,
    socket: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        // Whoever took them away already has done what this is for.
        let _ = std::fs::remove_file(&self.socket);
        let _ = std::fs::remove_dir(&self.directory);
    }
}

impl Notify {
    /// Binds a socket in a fresh private directory under XDG_RUNTIME_DIR, or else the directory for temporary files.
    /// Where nothing can be written (a container with a read-only root) it has an abstract name, which anybody in this
    /// network namespace can send to: senders are told apart by their process ids either way.
    /// `forward` is the NOTIFY_SOCKET that was set already (a path, or `@` and an abstract name): it gets every message
    /// too.
    ///
    /// # Errors
    /// No socket could be bound at all.
    pub fn bind(forward: Option<&Path>) -> std::io::Result<Notify> {
        let mut places = Vec::new();
        places.extend(std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()).map(PathBuf::from));
        places.push(std::env::temp_dir());
        // A long TMPDIR leaves no room for the socket's name: 108 bytes are all of it (unix(7)).
        places.push(PathBuf::from("/tmp"));
        places.push(PathBuf::from("/dev/shm"));
        match places.iter().find_map(|place| Notify::bind_in(place, forward).ok()) {
            Some(notify) => Ok(notify),
            None => Notify::bind_abstract(forward),
        }
    }

    fn bind_abstract(forward: Option<&Path>) -> std::io::Result<Notify> {
        let name = format!("stagemark-{}-{:x}", std::process::id(), Mono::now().0);
        let bound = Mono::now();
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        Notify::new(socket, format!("@{name}").into(), None, forward, bound)
    }

    fn bind_in(parent: &Path, forward: Option<&Path>) -> std::io::Result<Notify> {
        remove_forgotten(parent);
        let mut tries = 0u32;
        let directory = loop {
            let directory = parent.join(format!("stagemark-{}-{:x}", std::process::id(), Mono::now().0));
            match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
                Ok(()) => break directory,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && tries < 16 => tries += 1,
                Err(error) => return Err(error),
            }
        };
        let place = Place { socket: directory.join("notify"), directory };
        let bound = Mono::now();
        let socket = UnixDatagram::bind(&place.socket)?;
        let address = place.socket.as_os_str().to_os_string();
        Notify::new(socket, address, Some(place), forward, bound)
    }

    fn new(
        socket: UnixDatagram,
        address: OsString,
        place: Option<Place>,
        forward: Option<&Path>,
        bound: Mono,
    ) -> std::io::Result<Notify> {
        // The kernel gives the sender's process id with each message that is sent from now on, and nobody knows the
        // address yet.
        setsockopt(&socket, sockopt::PassCred, &true)?;
        Ok(Notify { socket, address, _place: place, forward: forward.map(Forward::to), bound })
    }

    /// The variables that the command needs to find it.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![(NOTIFY_SOCKET.into(), self.address.clone()), (STAGEMARK_SOCKET.into(), self.address.clone())]
    }

    /// Starts the thread that hears the messages. `is_ours` says whether a sender is of the launch.
    ///
    /// # Errors
    /// eventfd(2) or the thread could not be had.
    pub fn watch(self, sender: Sender<Seen>, is_ours: IsOurs) -> std::io::Result<NotifyWatch> {
        let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?);
        let mut hearing = Hearing {
            empty: self.bound,
            notify: self,
            sender,
            is_ours,
            stop: stop.clone(),
            refused: 0,
            odd: 0,
            queued: 0,
            behind: None,
            deaf: false,
        };
        let thread = std::thread::Builder::new().name("notify".to_string()).spawn(move || hearing.run())?;
        Ok(NotifyWatch(Ending::of(stop, Some(thread))))
    }
}

/// Takes away what profilers left that were killed. Whether somebody hears at a socket still is asked of the socket: a
/// process number says nothing where others share the folder.
fn remove_forgotten(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten().take(MOST_FORGOTTEN) {
        let name = entry.file_name();
        let is_ours = name
            .to_str()
            .and_then(|name| name.strip_prefix("stagemark-")?.split_once('-'))
            .is_some_and(|(pid, time)| pid.parse::<u32>().is_ok() && u64::from_str_radix(time, 16).is_ok());
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let socket = entry.path().join("notify");
        let tried = UnixDatagram::unbound().and_then(|tried| tried.connect(&socket));
        // One that was made just now is not bound yet, and then there is none.
        if tried.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) {
            let _ = std::fs::remove_file(&socket);
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// The notification thread.
pub struct NotifyWatch(Ending);

impl NotifyWatch {
    /// Hears what was sent so far, then ends and takes the socket away. Messages that go on coming are heard for 2 s at
    /// most.
    pub fn finish(self) {
        self.0.finish();
    }
}

/// The thread's state.
struct Hearing {
    notify: Notify,
    sender: Sender<Seen>,
    is_ours: IsOurs,
    stop: Arc<EventFd>,
    /// The last moment at which the socket is known to have been empty.
    empty: Mono,
    /// Messages refused, and assignments not understood.
    refused: u64,
    odd: u64,
    /// Messages sent on since the recorder was last asked to say that it has come so far…
    queued: usize,
    /// … and where it will say so.
    behind: Option<UnixStream>,
    deaf: bool,
}

impl Hearing {
    fn run(&mut self) {
        let mut buffer = vec![0; LONGEST_FORWARDED];
        if let Some(Forward { problem: Some(problem), .. }) = &self.notify.forward {
            let what = What::warning(problem.clone());
            self.send(Mono::now(), Some(0), Observed::Event(what));
        }
        while !self.deaf {
            let asked = Mono::now();
            let mut fds = [
                PollFd::new(self.stop.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.notify.socket.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, TICK_MS) {
                // poll(2) looks once more when its time is over.
                Ok(0) => self.empty = asked.plus(TICK_NS),
                Ok(_) => {
                    let stopped = fds[0].any() == Some(true);
                    self.hear(&mut buffer, stopped.then(|| Instant::now() + LONGEST_FINISH));
                    if stopped {
                        break;
                    }
                }
                Err(Errno::EINTR) => {}
                // Out of memory in the kernel: not to be met with a loop that asks again at once.
                Err(_) => std::thread::sleep(Duration::from_nanos(TICK_NS)),
            }
        }
        if self.refused > MOST_WARNINGS {
            let text = format!("{} notifications from outside the launch were refused in all", self.refused);
            self.send(Mono::now(), None, Observed::Event(What::warning(text)));
        }
        if self.odd > MOST_WARNINGS {
            let text = format!("{} notifications were not understood in all", self.odd);
            self.send(Mono::now(), None, Observed::Event(What::warning(text)));
        }
    }

    /// Takes every message that is there.
    fn hear(&mut self, buffer: &mut [u8], deadline: Option<Instant>) {
        while !self.deaf && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            let before = Mono::now();
            match receive(self.notify.socket.as_fd(), buffer) {
                Ok(received) => {
                    let message = &buffer[..received.length];
                    self.message(message, received);
                }
                Err(Errno::EINTR) => {}
                Err(_) => {
                    self.empty = before;
                    return;
                }
            }
            if deadline.is_none() {
                self.wait_for_recorder();
            }
        }
    }

    fn message(&mut self, bytes: &[u8], received: Received) {
        let now = Mono::now();
        let uncertainty_ns = Some(now.since(self.empty));
        // A sender in a pid namespace that cannot be seen from here has the pid 0; the launch's own are always seen.
        let pid = received.pid.filter(|pid| *pid > 0);
        let ours = match received.pid {
            Some(0) => Some(false),
            Some(pid) => (self.is_ours)(pid),
            None => None,
        };
        if ours == Some(false) {
            self.refuse(now, uncertainty_ns, pid, received.descriptors);
            return;
        }
        if received.cut || bytes.len() > LONGEST_MESSAGE {
            let what = format!("a notification of {} longer than {LONGEST_MESSAGE} bytes was refused", sender(pid));
            self.warn_odd(now, uncertainty_ns, what);
        } else {
            let message = Message::read(bytes);
            for problem in &message.problems {
                self.warn_odd(now, uncertainty_ns, format!("{problem} (from {})", sender(pid)));
            }
            // Its own time, if it can be: to the microsecond, so that it happened within the one that follows.
            let own = message.monotonic_usec.and_then(|usec| usec.checked_mul(1000)).map(Mono);
            let (at, uncertainty_ns) = match own.filter(|own| *own >= self.notify.bound && *own <= now) {
                Some(own) => {
                    let at = own.plus(1000).min(now);
                    (at, Some(at.since(own)))
                }
                None => (now, uncertainty_ns),
            };
            for what in message.events(pid, ours == Some(true)) {
                self.send(at, uncertainty_ns, Observed::Event(what));
            }
        }
        if !received.cut
            && let Some(forward) = &mut self.notify.forward
            && let Some(problem) = forward.pass_on(bytes, &received.descriptors)
        {
            self.send(now, uncertainty_ns, Observed::Event(What::warning(problem)));
        }
        if has_barrier(bytes) {
            for descriptor in received.descriptors {
                self.send(Mono::now(), Some(0), Observed::Barrier(descriptor));
            }
        }
        self.queued += 1;
    }

    fn refuse(&mut self, at: Mono, uncertainty_ns: Option<u64>, pid: Option<Pid>, descriptors: Vec<OwnedFd>) {
        self.refused += 1;
        if self.refused <= MOST_WARNINGS {
            let text = format!("a notification from {}, which is not of this launch, was refused", sender(pid));
            self.send(at, uncertainty_ns, Observed::Event(What::warning(text)));
        }
        for descriptor in descriptors {
            // Only a socket takes this, and never waits; a pipe's end (sd_notify_barrier(3)) says no.
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = nix::sys::socket::send(descriptor.as_raw_fd(), REFUSED, flags);
        }
    }

    fn warn_odd(&mut self, at: Mono, uncertainty_ns: Option<u64>, text: String) {
        self.odd += 1;
        if self.odd <= MOST_WARNINGS {
            self.send(at, uncertainty_ns, Observed::Event(What::warning(text)));
        }
    }

    /// Keeps the recorder from falling behind without bound: every so many messages it gets a barrier of the watcher's
    /// own, and it must have come to that before as many again are taken.
    fn wait_for_recorder(&mut self) {
        if self.queued < MOST_QUEUED {
            return;
        }
        if let Some(behind) = self.behind.take() {
            let mut fds =
                [PollFd::new(self.stop.as_fd(), PollFlags::POLLIN), PollFd::new(behind.as_fd(), PollFlags::POLLIN)];
            while matches!(poll(&mut fds, nix::poll::PollTimeout::NONE), Err(Errno::EINTR)) {}
        }
        if let Ok((here, there)) = UnixStream::pair() {
            self.behind = Some(here);
            self.send(Mono::now(), Some(0), Observed::Barrier(there.into()));
        }
        self.queued = 0;
    }

    fn send(&mut self, at: Mono, uncertainty_ns: Option<u64>, what: Observed) {
        self.deaf |= self.sender.send(Seen { at, uncertainty_ns, what }).is_err();
    }
}

fn sender(pid: Option<Pid>) -> String {
    pid.map_or_else(|| "a process that cannot be seen".to_string(), |pid| format!("process {pid}"))
}

fn has_barrier(bytes: &[u8]) -> bool {
    bytes.split(|byte| *byte == b'\n').any(|line| line == b"BARRIER=1")
}

/// What a message says, as far as it concerns a launch; other assignments of the protocol are passed over.
#[derive(Debug, Default, PartialEq, Eq)]
struct Message {
    stages: Vec<String>,
    status: Option<String>,
    ready: bool,
    monotonic_usec: Option<u64>,
    problems: Vec<String>,
}

impl Message {
    fn read(bytes: &[u8]) -> Message {
        let mut message = Message::default();
        for line in bytes.split(|byte| *byte == b'\n') {
            let Some(equals) = line.iter().position(|byte| *byte == b'=') else {
                if !line.is_empty() {
                    message.problem(line, "is no assignment");
                }
                continue;
            };
            let (name, value) = (&line[..equals], &line[equals + 1..]);
            match name {
                b"READY" => message.ready |= value == b"1",
                b"STATUS" => message.status = Some(shortened(value)),
                b"X_STAGE" => match std::str::from_utf8(value) {
                    Ok(stage) if is_stage_name(stage) => message.stages.push(stage.to_string()),
                    _ => {
                        let why = format!("names no stage: 1 to {LONGEST_STAGE_NAME} letters, digits, `_`, `.`, `-`");
                        message.problem(line, &why);
                    }
                },
                b"MONOTONIC_USEC" => match std::str::from_utf8(value).ok().and_then(|value| value.parse().ok()) {
                    Some(usec) => message.monotonic_usec = Some(usec),
                    None => message.problem(line, "is no number of microseconds"),
                },
                _ => {}
            }
        }
        message
    }

    fn problem(&mut self, line: &[u8], why: &str) {
        self.problems.push(format!("in a notification, `{}` {why}", shortened(line)));
    }

    /// One event a stage; status and readiness go with the first.
    fn events(mut self, pid: Option<Pid>, verified: bool) -> Vec<What> {
        let event = |stage, status, ready| What::Notify { pid, stage, status, ready, verified };
        if self.stages.is_empty() {
            return match (self.status, self.ready) {
                (None, false) => Vec::new(),
                (status, ready) => vec![event(None, status, ready)],
            };
        }
        let (mut status, mut ready) = (self.status.take(), self.ready);
        let stages = self.stages.into_iter();
        stages.map(|stage| event(Some(stage), status.take(), std::mem::take(&mut ready))).collect()
    }
}

fn shortened(bytes: &[u8]) -> String {
    if bytes.len() <= LONGEST_STATUS {
        return text_of(OsStr::from_bytes(bytes));
    }
    let mut end = LONGEST_STATUS;
    // Not in the middle of a character, where there are characters.
    while end > LONGEST_STATUS - 4 && bytes[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    text_of(OsStr::from_bytes(&bytes[..end])) + "…"
}

/// The NOTIFY_SOCKET that was there before.
struct Forward {
    socket: Option<UnixDatagram>,
    address: Option<UnixAddr>,
    /// Why nothing is passed on, or the last message was not.
    problem: Option<String>,
}

impl Forward {
    fn to(path: &Path) -> Forward {
        let bytes = path.as_os_str().as_bytes();
        let address = match bytes.split_first() {
            Some((b'@', name)) => UnixAddr::new_abstract(name),
            Some((b'/', _)) => UnixAddr::new(path),
            _ => Err(Errno::EAFNOSUPPORT),
        };
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.set_write_timeout(Some(Duration::from_secs(LONGEST_FORWARD.unsigned_abs())))?;
            Ok(socket)
        });
        let problem = match (&address, &socket) {
            (Err(error), _) => Some(error.to_string()),
            (_, Err(error)) => Some(error.to_string()),
            _ => None,
        };
        Forward {
            socket: socket.ok(),
            address: address.ok(),
            problem: problem
                .map(|error| format!("the NOTIFY_SOCKET that was set, {}, cannot be used: {error}", text_of(path))),
        }
    }

    /// Passes a message on. Returns a problem where there was none with the message before.
    fn pass_on(&mut self, bytes: &[u8], descriptors: &[OwnedFd]) -> Option<String> {
        let (Some(socket), Some(address)) = (&self.socket, &self.address) else { return None };
        let descriptors: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let control = if descriptors.is_empty() { &[] } else { &rights[..] };
        let sent = loop {
            let flags = MsgFlags::MSG_NOSIGNAL;
            match sendmsg(socket.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, Some(address)) {
                Err(Errno::EINTR) => {}
                sent => break sent,
            }
        };
        match sent {
            Ok(_) => {
                self.problem = None;
                None
            }
            Err(error) => {
                let is_new = self.problem.is_none();
                let problem =
                    format!("a notification could not be passed on to the NOTIFY_SOCKET that was set: {error}");
                self.problem = Some(problem.clone());
                is_new.then_some(problem)
            }
        }
    }
}

/// `stagemark mark NAME`: sends a mark to the run that this process belongs to, and waits until it was heard.
///
/// # Errors
/// The name cannot be a stage's; this process is in no run; nobody hears, or did not within 5 s; or the run refused
/// it, since this process is not of its launch.
pub fn mark(stage: &str) -> anyhow::Result<()> {
    let address = [STAGEMARK_SOCKET, NOTIFY_SOCKET]
        .into_iter()
        .find_map(|name| std::env::var_os(name).filter(|value| !value.is_empty()));
    let Some(address) = address else {
        bail!("not inside a `stagemark run`: neither {STAGEMARK_SOCKET} nor {NOTIFY_SOCKET} is set");
    };
    mark_at(stage, Path::new(&address), LONGEST_MARK)
}

fn mark_at(stage: &str, path: &Path, limit: Duration) -> anyhow::Result<()> {
    if !is_stage_name(stage) {
        bail!(
            "`{}` cannot be a stage's name: 1 to {LONGEST_STAGE_NAME} letters, digits, `_`, `.`, `-`",
            text_of(stage)
        );
    }
    let now = Mono::now();
    let shown = text_of(path);
    let address = match path.as_os_str().as_bytes().split_first() {
        Some((b'@', name)) => UnixAddr::new_abstract(name),
        _ => UnixAddr::new(path),
    }
    .with_context(|| format!("{shown}: not the address of a socket"))?;
    let socket = UnixDatagram::unbound().context("cannot make a socket")?;
    socket.set_write_timeout(Some(limit)).context("cannot make a socket")?;
    let send = |text: &str, control: &[ControlMessage]| {
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg(socket.as_raw_fd(), &[IoSlice::new(text.as_bytes())], control, flags, Some(&address))
            .with_context(|| format!("{shown}: the run cannot be reached: is it over?"))
    };
    send(&format!("X_STAGE={stage}\nMONOTONIC_USEC={}", now.0 / 1000), &[])?;
    // A socket where the protocol has a pipe: both hang up when the other end is dropped, and this one can say no.
    let (here, there) = UnixStream::pair().context("cannot make a socket")?;
    send("BARRIER=1", &[ControlMessage::ScmRights(&[there.as_raw_fd()])])?;
    drop(there);
    here.set_read_timeout(Some(limit)).context("cannot wait")?;
    let mut answer = [0; REFUSED.len()];
    match std::io::Read::read(&mut (&here), &mut answer) {
        Ok(0) => Ok(()),
        Ok(_) => bail!("`{stage}` was refused: this process is not of the launch that {shown} belongs to"),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            bail!("`{stage}` was sent, but not heard within {} s", limit.as_secs())
        }
        Err(error) => Err(error).context("cannot wait"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn stages(message: &Message) -> Vec<&str> {
        message.stages.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_message_is_read_line_by_line() {
        let message =
            Message::read(b"READY=1\nSTATUS=warm \xff\nX_STAGE=a\nX_STAGE=b.2\nMONOTONIC_USEC=12\nMAINPID=3\n");
        assert_eq!(stages(&message), ["a", "b.2"]);
        assert_eq!(message.status.as_deref(), Some("warm \\xff"));
        assert_eq!((message.ready, message.monotonic_usec, message.problems.len()), (true, Some(12), 0));
        let events = message.events(Some(7), true);
        assert_eq!(
            events[0],
            What::Notify {
                pid: Some(7),
                stage: Some("a".into()),
                status: Some("warm \\xff".into()),
                ready: true,
                verified: true
            }
        );
        assert_eq!(
            events[1],
            What::Notify { pid: Some(7), stage: Some("b.2".into()), status: None, ready: false, verified: true }
        );
        assert_eq!(events.len(), 2);
    }

    #[test]
    fn what_is_not_understood_is_said() {
        let long = format!("X_STAGE={}", "a".repeat(LONGEST_STAGE_NAME + 1));
        for bad in ["X_STAGE=", "X_STAGE=a b", "X_STAGE=../x", "X_STAGE=\u{e4}", &long, "MONOTONIC_USEC=-1", "nothing"]
        {
            let message = Message::read(bad.as_bytes());
            assert_eq!(message.problems.len(), 1, "{bad}");
            assert!(message.problems[0].len() < 2 * LONGEST_STATUS);
            assert!(message.events(None, true).is_empty());
        }
        assert_eq!(Message::read(b"WATCHDOG=1\nBARRIER=1\n\n").events(None, true), []);
        assert_eq!(Message::read(b"READY=0").events(None, true), []);
        assert!(
            Message::read(&[b"STATUS=".to_vec(), vec![0xff; 5000]].concat()).status.unwrap().len() < 5 * LONGEST_STATUS
        );
    }

    #[test]
    fn barriers_are_found() {
        assert!(has_barrier(b"BARRIER=1"));
        assert!(has_barrier(b"X_STAGE=a\nBARRIER=1\n"));
        assert!(!has_barrier(b"BARRIER=0\nXBARRIER=1\n"));
    }

    #[test]
    fn an_abstract_name_serves_as_well() {
        let notify = Notify::bind_abstract(None).unwrap();
        let address = PathBuf::from(&notify.environment()[0].1);
        assert!(address.as_os_str().as_bytes().starts_with(b"@"));
        let (sender, seen) = std::sync::mpsc::channel();
        let watch = notify.watch(sender, Box::new(|_| Some(true))).unwrap();
        // Each barrier is let go as it is taken out.
        let taking =
            std::thread::spawn(move || seen.into_iter().map(|seen| format!("{:?}", seen.what)).collect::<Vec<_>>());
        mark_at("a", &address, LONGEST_MARK).unwrap();
        watch.finish();
        let seen = taking.join().unwrap();
        assert!(seen[0].contains("Notify") && seen[1].contains("Barrier") && seen.len() == 2, "{seen:?}");
    }

    #[test]
    fn the_client_says_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none");
        let error = |stage, path: &Path| format!("{:#}", mark_at(stage, path, Duration::from_millis(50)).unwrap_err());
        assert!(error("a b", &path).contains("cannot be a stage's name"));
        assert!(error("a", &path).contains("cannot be reached"));
        let _silent = UnixDatagram::bind(&path).unwrap();
        assert!(error("a", &path).contains("not heard"));
    }
}
