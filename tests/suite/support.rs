//! What every test needs: the program under test, and a folder that goes away.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sha2::{Digest, Sha256};

/// How long a live test waits for anything before it fails: a series of runs too, on a machine that does much else.
pub const LIMIT: Duration = Duration::from_secs(180);

/// The program under test.
pub fn stagemark() -> Command {
    Command::new(env!("CARGO_BIN_EXE_stagemark"))
}

/// The reference loader, as the bundled verb.
pub fn reference_loader() -> [&'static str; 2] {
    [env!("CARGO_BIN_EXE_stagemark"), "reference-loader"]
}

/// `stagemark run --quiet -- ARGV`, in a fresh folder so that nothing is left behind.
pub fn run_of<S: AsRef<OsStr>>(argv: &[S], folder: &tempfile::TempDir) -> Command {
    let mut command = stagemark();
    command.args(run_arguments(folder)).args(argv);
    command
}

/// The arguments up to and with `--`.
pub fn run_arguments(folder: &tempfile::TempDir) -> Vec<std::ffi::OsString> {
    // Each in a folder of its own: an existing one that is not empty is refused.
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let out = folder.path().join(format!("run-{number}"));
    vec!["run".into(), "--quiet".into(), "--out".into(), out.into(), "--".into()]
}

/// A folder that goes away.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Runs to the end with nothing on standard input; kills and fails after [`LIMIT`].
pub fn finish(command: &mut Command) -> Output {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let collect = |source: Option<OwnedFd>| std::thread::spawn(move || source.map(read_all).unwrap_or_default());
    let stdout = collect(child.stdout.take().map(OwnedFd::from));
    let stderr = collect(child.stderr.take().map(OwnedFd::from));
    let status = ended(&mut child);
    Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

/// Waits for a child's end; kills it and fails after [`LIMIT`].
pub fn ended(child: &mut Child) -> std::process::ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > LIMIT {
            let at = waiting_at(child.id() as i32);
            let _ = child.kill();
            let _ = child.wait();
            panic!("did not end within {LIMIT:?}: {at}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What each thread of a process and of its children waits in, for a failure that shows once in many runs.
fn waiting_at(pid: i32) -> String {
    let mut told = String::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |name| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default().trim().to_owned();
        told += &format!("\n{pid} {}: {} ({})", read("comm"), read("wchan"), read("syscall"));
        let children = read("children");
        told.extend(children.split_whitespace().filter_map(|child| child.parse().ok()).map(waiting_at));
    }
    told
}

/// Looks again and again until something is so; fails after [`LIMIT`].
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reads what is there, waiting for at most [`LIMIT`]; 0 is the end.
pub fn read_some(fd: impl AsFd, buffer: &mut [u8]) -> usize {
    loop {
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut fds, PollTimeout::try_from(LIMIT).unwrap());
        match ready {
            Ok(0) => panic!("nothing to read within {LIMIT:?}"),
            Err(nix::errno::Errno::EINTR) => continue,
            _ => {}
        }
        match nix::unistd::read(fd.as_fd(), buffer) {
            Ok(length) => return length,
            // The other side of a pty is gone.
            Err(nix::errno::Errno::EIO) => return 0,
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads to the end.
pub fn read_all(fd: impl AsFd) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match read_some(&fd, &mut buffer) {
            0 => return all,
            length => all.extend_from_slice(&buffer[..length]),
        }
    }
}

/// A running digest of what is read.
#[derive(Default)]
pub struct Reader {
    pub bytes: u64,
    digest: Sha256,
}

impl Reader {
    /// Reads at least `least` bytes unless the end comes first; says whether it came.
    pub fn read(&mut self, fd: impl AsFd, least: u64) -> bool {
        let goal = self.bytes.saturating_add(least);
        let mut buffer = vec![0; 1 << 16];
        while self.bytes < goal {
            match read_some(&fd, &mut buffer) {
                0 => return true,
                length => {
                    self.bytes += length as u64;
                    self.digest.update(&buffer[..length]);
                }
            }
        }
        false
    }

    /// Bytes and digest so far.
    pub fn sum(self) -> (u64, Vec<u8>) {
        (self.bytes, self.digest.finalize().to_vec())
    }
}

/// What a program prints when nothing stands between, as bytes and digest.
pub fn printed_by(argv: &[&str]) -> (u64, Vec<u8>) {
    let mut child = Command::new(argv[0]).args(&argv[1..]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = Reader::default();
    reader.read(child.stdout.take().unwrap(), u64::MAX);
    assert!(ended(&mut child).success());
    reader.sum()
}

/// The digest of a file.
pub fn sum_of_file(path: &std::path::Path) -> (u64, Vec<u8>) {
    let mut reader = Reader::default();
    reader.read(File::open(path).unwrap(), u64::MAX);
    reader.sum()
}

/// The live children of a process with this name (/proc/PID/comm).
pub fn children_named(parent: i32, name: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let Some((head, rest)) = stat.rsplit_once(')') else { continue };
        let mut fields = rest.split_whitespace();
        let (state, of) = (fields.next(), fields.next());
        let comm = head.split_once('(').map(|(_, comm)| comm);
        if of == Some(&parent.to_string()) && comm == Some(name) && state != Some("Z") {
            found.push(pid);
        }
    }
    found
}

/// The state letter of a process (proc_pid_stat(5)); `None` if there is no such process.
pub fn state_of(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Sends a signal to a process that the test started.
pub fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// What was printed so far, and whether that was all.
type Seen = (Mutex<(Vec<u8>, bool)>, Condvar);

/// A terminal: a session of its own whose controlling terminal is a pty that the test holds the other end of.
pub struct Terminal {
    master: Arc<File>,
    seen: Arc<Seen>,
    leader: Child,
}

impl Terminal {
    /// Runs a shell script there, `arguments` being its parameters. `raw`: bytes pass unmodified.
    pub fn start(shell: &str, script: &str, arguments: &[std::ffi::OsString], raw: bool, size: (u16, u16)) -> Terminal {
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = nix::pty::posix_openpt(flags).unwrap();
        nix::pty::unlockpt(&master).unwrap();
        let name = nix::pty::ptsname_r(&master).unwrap();
        let slave = open(name.as_str(), flags, nix::sys::stat::Mode::empty()).unwrap();
        let mut modes = nix::sys::termios::tcgetattr(&slave).unwrap();
        modes.local_flags.remove(nix::sys::termios::LocalFlags::ECHO);
        if raw {
            modes.output_flags.remove(nix::sys::termios::OutputFlags::OPOST);
        }
        nix::sys::termios::tcsetattr(&slave, nix::sys::termios::SetArg::TCSANOW, &modes).unwrap();
        let master = Arc::new(File::from(OwnedFd::from(master)));
        set_size(&slave, size);
        let leader = Command::new("setsid")
            .args(["--ctty", shell, "-c", script, shell])
            .args(arguments)
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave)
            .spawn()
            .unwrap();
        let seen = Arc::new((Mutex::new((Vec::new(), false)), Condvar::new()));
        let (reader, into) = (Arc::clone(&master), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                let length = (&*reader).read(&mut buffer).unwrap_or(0);
                let mut all = into.0.lock().unwrap();
                all.0.extend_from_slice(&buffer[..length]);
                all.1 = length == 0;
                into.1.notify_all();
                if length == 0 {
                    return;
                }
            }
        });
        Terminal { master, seen, leader }
    }

    /// The session leader.
    pub fn leader(&self) -> i32 {
        self.leader.id() as i32
    }

    /// Types.
    pub fn enter(&self, bytes: &[u8]) {
        (&*self.master).write_all(bytes).unwrap();
    }

    /// Changes the size: rows, columns.
    pub fn resize(&self, size: (u16, u16)) {
        set_size(&*self.master, size);
    }

    /// Waits until a text has been printed since `from`; gives all that was printed and where the text ends.
    pub fn wait_for(&self, text: &str, from: usize) -> (Vec<u8>, usize) {
        let find = |all: &[u8]| memchr::memmem::find(all.get(from..)?, text.as_bytes());
        let (lock, changed) = &*self.seen;
        let all = lock.lock().unwrap();
        let (all, _) = changed.wait_timeout_while(all, LIMIT, |all| find(&all.0).is_none() && !all.1).unwrap();
        match find(&all.0) {
            Some(at) => (all.0.clone(), from + at + text.len()),
            None => panic!("{text:?} was not printed; but: {:?}", tail(&all.0)),
        }
    }
}

fn tail(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(2000)..]).into_owned()
}

/// Sets a terminal's size, by stty so as to need no ioctl here.
fn set_size(terminal: impl AsFd, (rows, columns): (u16, u16)) {
    let status = Command::new("stty")
        .args(["rows", &rows.to_string(), "cols", &columns.to_string()])
        .stdin(terminal.as_fd().try_clone_to_owned().unwrap())
        .status()
        .unwrap();
    assert!(status.success());
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The end of the leader hangs the terminal up for whatever is left in it.
        let _ = self.leader.kill();
        let _ = self.leader.wait();
    }
}
