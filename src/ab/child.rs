//! Children of a series, one at a time, and what becomes of the signals that end it.
//!
//! What a terminal sends comes to the child too, which is in this process's group; what somebody sent to this process
//! alone is handed on, once. Either way the child is waited for: `stagemark run` ends when its command has.

use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::os::unix::process::ExitStatusExt;

use crate::launch::ending::Ending;
use crate::sys::process::start_with_blocked;
use crate::sys::startup;

/// So much of what a child says last is kept.
const TAIL: usize = 4096;

/// How long the last words of a child that has ended are waited for: a process that it left may hold its outputs.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// As a shell has it: 128 + the signal that ended it.
    pub status: i32,
    /// The last of what it said on standard error.
    pub said: String,
}

/// Runs a child to its end. What it prints is taken, and shown on standard error where `show` says so.
///
/// # Errors
/// It could not be started, or not be waited for.
pub(super) fn run(command: &mut Command, signals: &mut Ending, show: bool) -> io::Result<Ended> {
    start_with_blocked(command, startup::given().blocked);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let tail = Arc::new(Mutex::new(Vec::new()));
    let readers = [
        child.stdout.take().map(|stdout| drain(stdout, None, show)),
        child.stderr.take().map(|stderr| drain(stderr, Some(Arc::clone(&tail)), show)),
    ];
    let status = wait(&mut child, signals)?;
    let deadline = Instant::now() + LAST_WORDS;
    for reader in readers.into_iter().flatten().flatten() {
        while !reader.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let said = String::from_utf8_lossy(&tail.lock().unwrap_or_else(PoisonError::into_inner)).trim().to_owned();
    Ok(Ended { status, said })
}

fn wait(child: &mut Child, signals: &mut Ending) -> io::Result<i32> {
    let pid = Pid::from_raw(child.id() as i32);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        }
        signals.wait();
        for signal in signals.take() {
            // It may have ended; it is not reaped yet, so that nobody else has its number.
            let _ = kill(pid, signal);
        }
    }
}

/// Reads to the end, so that nobody waits for a reader.
fn drain(
    mut source: impl Read + Send + 'static,
    tail: Option<Arc<Mutex<Vec<u8>>>>,
    show: bool,
) -> Option<std::thread::JoinHandle<()>> {
    let read = move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let length = match source.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            if show {
                let _ = io::stderr().write_all(&buffer[..length]);
            }
            if let Some(tail) = &tail {
                let mut kept = tail.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&buffer[..length]);
                let beyond = kept.len().saturating_sub(TAIL);
                kept.drain(..beyond);
            }
        }
    };
    std::thread::Builder::new().name("output".into()).spawn(read).ok()
}
