//! The main thread's loop while the command runs: forwards signals, reaps by pid, takes over a dead pump.
//!
//! It must not fail: whatever is refused to it, it falls back to waiting for the command's end.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid as NixPid, getpgid, getpgrp, tcgetpgrp};

use super::child::Started;
use super::finals::Finals;
use super::output::Outputs;
use super::signals::{self, Inbox, Notice};
use crate::clock::Mono;
use crate::event::{Pid, What};
use crate::proc::stat::Stat;
use crate::sys::process::{Death, find_dead_child, find_stop, reap};
use crate::watch::{Observed, Seen};

/// How long the command has to end after SIGTERM when it is stopped.
const GRACE: Duration = Duration::from_secs(10);
/// How often a terminal's size and modes are looked at; SIGWINCH goes to the foreground group only, which may not be
/// ours, and nothing tells of modes.
const TERMINAL_LOOK: Duration = Duration::from_millis(25);
/// How long the rest of a job has to stop, and to leave its terminal as it wants it, once the command's root has.
const STOPPING: Duration = Duration::from_millis(10);
/// How often everything is looked at where the kernel refuses to wake us.
const BLIND_LOOK: Duration = Duration::from_millis(20);
/// How the command ended (wait(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub pid: Pid,
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

impl Ended {
    /// The status that a shell would show: the command's own, or 128 + signal.
    pub fn status(&self) -> u8 {
        match (self.code, self.signal) {
            (Some(code), _) => code as u8,
            (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
            (None, None) => 125,
        }
    }
}

/// Asks the supervisor, from another thread, to end the command (`--then stop`).
#[derive(Clone, Debug)]
pub struct Control(Arc<EventFd>);

impl Control {
    /// A control to be handed to [`supervise`] and to whoever may ask.
    pub fn new() -> std::io::Result<Control> {
        Ok(Control(Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)))
    }

    /// Sends SIGTERM to the command, and SIGKILL to what is left of the tree 10 s later.
    pub fn stop(&self) {
        // Fails only when it was asked 2^64 times already.
        let _ = self.0.write(1);
    }

    fn was_asked(&self) -> bool {
        self.0.read().is_ok()
    }
}

/// Runs until the command has ended. Sends [`Seen`] for each process reaped, and for the end itself.
///
/// Reaps every child of this process: no other thread may start and wait for children of its own meanwhile. Signals
/// stay held back afterwards ([`signals::release`]).
pub fn supervise(
    started: &Started,
    outputs: &mut Outputs,
    finals: &Finals,
    control: &Control,
    sender: &Sender<Seen>,
) -> std::io::Result<Ended> {
    let root = NixPid::from_raw(started.pid);
    let inbox = Inbox::open().ok();
    let mut wake = Wake::default();
    let mut arrivals = Arrivals::new();
    let mut kill_at: Option<Instant> = None;
    loop {
        let looked = Mono::now();
        if let Some(ended) = reap_all(root.as_raw(), outputs, finals, sender, &wake) {
            // Before the caller's shell has the terminal back.
            outputs.copy_modes(false, may_set_modes);
            return Ok(ended);
        }
        let threads = outputs.tend_threads();
        if control.was_asked() && kill_at.is_none() {
            // ESRCH: it has ended just now, and is about to be reaped.
            let _ = kill(root, Signal::SIGTERM);
            kill_at = Some(Instant::now() + GRACE);
        }
        if kill_at.is_some_and(|at| Instant::now() >= at) {
            kill_tree(outputs);
            kill_at = Some(Instant::now() + BLIND_LOOK * 5);
        }

        let mut limit = kill_at.map(|at| at.saturating_duration_since(Instant::now()));
        if outputs.has_terminal() {
            limit = Some(limit.map_or(TERMINAL_LOOK, |limit| limit.min(TERMINAL_LOOK)));
        }
        if inbox.is_none() || threads {
            limit = Some(limit.map_or(BLIND_LOOK, |limit| limit.min(BLIND_LOOK)));
        }
        wake = wait(inbox.as_ref().map(|inbox| inbox.as_fd()), control.0.as_fd(), limit, looked);

        let (mut resized, mut continued) = (false, false);
        arrivals.woken(&wake);
        while let Some(notice) = inbox.as_ref().and_then(|inbox| arrivals.next(inbox)) {
            match notice {
                Notice::ForCommand { signal, from } => {
                    continued |= signal == Signal::SIGCONT;
                    forward(root, signal, from, arrivals.sent_after(signal), outputs);
                }
                Notice::Resized => resized = true,
                Notice::Child | Notice::Other => {}
            }
        }
        outputs.copy_modes(continued, may_set_modes);
        if let Some(signal) = find_stop(root.as_raw()) {
            stop_with(root, signal, outputs);
        }
        if outputs.has_terminal() && (outputs.copy_window_size() || resized) {
            tell_of_size(root, outputs);
        }
    }
}

/// When the loop was last awake, and for how long it was kept from running since.
#[derive(Clone, Copy, Debug, Default)]
struct Wake {
    /// How long before `at` it could have run but for want of a processor, in nanoseconds; `None` if unknown.
    delay: Option<u64>,
    at: Option<Mono>,
    /// The end of a sleep that found nothing at its beginning, and by how much it came late, in nanoseconds.
    slept_until: Option<(Mono, u64)>,
}

impl Wake {
    /// For how long before now what woke the loop may have happened: since it was made runnable.
    fn uncertainty(&self, now: Mono) -> Option<u64> {
        Some(self.delay? + now.since(self.at?))
    }
}

/// When the signals in the inbox can have been sent at the earliest.
#[derive(Debug)]
struct Arrivals {
    /// Nothing waited in the inbox then.
    empty: Mono,
    /// When the last of each kind was taken, before which the next of its kind would have been one with it; and the
    /// one before that.
    taken: HashMap<Signal, (Mono, Mono)>,
}

impl Arrivals {
    fn new() -> Arrivals {
        Arrivals { empty: Mono(0), taken: HashMap::new() }
    }

    /// The loop slept until something came: nothing had come before it was made runnable.
    fn woken(&mut self, wake: &Wake) {
        if let Some((at, delay)) = wake.slept_until {
            self.empty = self.empty.max(Mono(at.0.saturating_sub(delay)));
        }
    }

    /// The inbox's next.
    fn next(&mut self, inbox: &Inbox) -> Option<Notice> {
        let now = Mono::now();
        let notice = inbox.next();
        match notice {
            None => self.empty = now,
            Some(Notice::ForCommand { signal, .. }) => {
                let last = self.taken.get(&signal).map_or(Mono(0), |(_, last)| *last);
                self.taken.insert(signal, (last, now));
            }
            Some(_) => {}
        }
        notice
    }

    /// The last signal of a kind that was taken was sent after this.
    fn sent_after(&self, signal: Signal) -> Mono {
        self.taken.get(&signal).map_or(self.empty, |(before, _)| self.empty.max(*before))
    }
}

/// Waits for one of the descriptors, or until the time is over. `looked`: when nothing was found to have happened.
fn wait(inbox: Option<BorrowedFd<'_>>, control: BorrowedFd<'_>, limit: Option<Duration>, looked: Mono) -> Wake {
    let mut fds = vec![PollFd::new(control, PollFlags::POLLIN)];
    fds.extend(inbox.map(|inbox| PollFd::new(inbox, PollFlags::POLLIN)));
    // Rounded up: a wait that is too short would be a busy one.
    let timeout = limit.map_or(PollTimeout::NONE, |limit| {
        PollTimeout::try_from(limit + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
    });
    if poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
        // Something came while the loop was awake.
        return Wake { delay: Some(0), at: Some(looked), slept_until: None };
    }
    let before = run_delay();
    if poll(&mut fds, timeout).is_err_and(|error| error != nix::errno::Errno::EINTR) {
        std::thread::sleep(BLIND_LOOK);
        return Wake::default();
    }
    if inbox.is_none() {
        // Nothing wakes the loop when a child ends.
        return Wake { delay: Some(0), at: Some(looked), slept_until: None };
    }
    let at = Mono::now();
    let delay = before.zip(run_delay()).map(|(before, after)| after.saturating_sub(before));
    Wake { delay, at: Some(at), slept_until: delay.map(|delay| (at, delay)) }
}

/// For how long this thread was ready to run but did not, in nanoseconds (schedstat's second figure:
/// Documentation/scheduler/sched-stats.rst).
fn run_delay() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Reaps every child that has ended, each by its pid after a look at it; returns the root's end if it is among them.
fn reap_all(root: Pid, outputs: &mut Outputs, finals: &Finals, sender: &Sender<Seen>, wake: &Wake) -> Option<Ended> {
    loop {
        let death = match find_dead_child() {
            Ok(Some(death)) => death,
            Ok(None) => return None,
            // No children at all, the root neither: somebody else has reaped it, and its status is lost.
            Err(_) => {
                tell_end(Death { pid: root, code: None, signal: None }, None, sender, true);
                return Some(Ended { pid: root, code: None, signal: None });
            }
        };
        if outputs.is_own(death.pid) {
            outputs.helpers().read(death.pid);
            let _ = reap(death.pid, false);
            // The last process of the command has set the terminal back and gone: its pty goes with the pump.
            outputs.copy_modes(false, may_set_modes);
            outputs.own_ended(death);
            continue;
        }
        let uncertainty = wake.uncertainty(Mono::now());
        finals.read(death.pid);
        let _ = reap(death.pid, false);
        tell_end(death, uncertainty, sender, death.pid == root);
        if death.pid == root {
            return Some(Ended { pid: root, code: death.code, signal: death.signal });
        }
    }
}

/// Sends what is seen of a process's end. The recorder may be gone: the command's status matters more.
fn tell_end(death: Death, uncertainty_ns: Option<u64>, sender: &Sender<Seen>, is_root: bool) {
    let at = Mono::now();
    let Death { pid, code, signal } = death;
    let _ = sender.send(Seen { at, uncertainty_ns, what: Observed::Event(What::Gone { pid, code, signal }) });
    if is_root {
        let _ = sender.send(Seen { at, uncertainty_ns, what: Observed::Event(What::Exit { pid, code, signal }) });
    }
}

/// Gives a signal to the command if it has not got it already.
fn forward(root: NixPid, signal: Signal, from: signals::Sender, sent_after: Mono, outputs: &mut Outputs) {
    let same_group = getpgid(Some(root)).is_ok_and(|group| group == getpgrp());
    let (from_tree, to_group) = match from {
        signals::Sender::Process(pid) => {
            (is_descendant(pid), outputs.witness().is_some_and(|witness| witness.saw(signal, pid, sent_after)))
        }
        signals::Sender::Kernel => (false, false),
    };
    if signals::must_forward(from, same_group, from_tree, to_group) {
        // ESRCH: it has ended just now. EPERM: it runs as another user, whom we may not signal; so it would be for
        // the sender.
        let _ = kill(root, signal);
    }
}

/// Stops as the command's root did, where a shell may be waiting for just that to take its terminal back. Elsewhere
/// nobody would know to continue the profiler.
fn stop_with(root: NixPid, signal: i32, outputs: &mut Outputs) {
    // A group is continued one process after the other, and its root may come last.
    std::thread::sleep(STOPPING);
    let state = stat_of(root.as_raw()).map(|stat| stat.state);
    // An interactive shell has made a group of its own the foreground one.
    let foreground = File::open("/dev/tty")
        .ok()
        .and_then(|terminal| tcgetpgrp(terminal).ok())
        .is_some_and(|group| group == getpgrp() || getpgid(Some(root)) == Ok(group));
    if state != Some(b'T') || !foreground {
        return;
    }
    // What the command did to its terminal before it stopped.
    outputs.copy_modes(false, may_set_modes);
    signals::stop_by(match Signal::try_from(signal) {
        Ok(Signal::SIGSTOP) => Signal::SIGSTOP,
        _ => Signal::SIGTSTP,
    });
}

/// Whether the command could set this terminal's modes itself: it is nobody's whom we know, or its foreground group is
/// ours or of the command's tree. Behind it there may be a shell that would be disturbed.
fn may_set_modes(terminal: BorrowedFd<'_>) -> bool {
    match tcgetpgrp(terminal) {
        // Not our controlling terminal: there is no job control to heed (tcsetattr(3p)).
        Err(_) => true,
        Ok(group) if group == getpgrp() => true,
        Ok(group) => {
            is_descendant(group.as_raw())
                || descendants().into_iter().any(|pid| getpgid(Some(NixPid::from_raw(pid))) == Ok(group))
        }
    }
}

/// Tells those who draw on the terminal that its size has changed: by now the pty has it, which it may not have had
/// when the terminal itself told them.
fn tell_of_size(root: NixPid, outputs: &Outputs) {
    let group = outputs.terminal().and_then(|terminal| tcgetpgrp(terminal).ok()).filter(|group| group.as_raw() > 1);
    let told = match group {
        // Ours: the command's root is enough unless it shares the work, and we would tell ourselves too. The signal
        // is ignored by default.
        Some(group) if group != getpgrp() => killpg(group, Signal::SIGWINCH).is_ok(),
        _ => false,
    };
    if !told {
        for pid in descendants() {
            if getpgid(Some(NixPid::from_raw(pid))).is_ok_and(|group| group == getpgrp()) && !outputs.is_own(pid) {
                let _ = kill(NixPid::from_raw(pid), Signal::SIGWINCH);
            }
        }
        if getpgid(Some(root)).is_ok_and(|group| group != getpgrp()) {
            let _ = kill(root, Signal::SIGWINCH);
        }
    }
}

/// Kills every process of the tree.
fn kill_tree(outputs: &Outputs) {
    for pid in descendants().into_iter().filter(|pid| !outputs.is_own(*pid)) {
        let _ = kill(NixPid::from_raw(pid), Signal::SIGKILL);
    }
}

fn stat_of(pid: Pid) -> Option<Stat> {
    Stat::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parent_of(pid: Pid) -> Option<Pid> {
    stat_of(pid).map(|stat| stat.parent)
}

/// Whether a process descends from this one. A sender that is gone already counts as a stranger.
fn is_descendant(pid: Pid) -> bool {
    let own = std::process::id() as Pid;
    let mut pid = pid;
    // Deeper trees exist only by intent.
    for _ in 0..1000 {
        match parent_of(pid) {
            Some(parent) if parent == own => return true,
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

/// Every process that descends from this one.
fn descendants() -> Vec<Pid> {
    let own = std::process::id() as Pid;
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut left = children.remove(&own).unwrap_or_default();
    while let Some(pid) = left.pop() {
        found.push(pid);
        left.extend(children.remove(&pid).unwrap_or_default());
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_a_shell_s() {
        let ended = |code, signal| Ended { pid: 1, code, signal }.status();
        (0..=255).for_each(|code| assert_eq!(i32::from(ended(Some(code), None)), code));
        (1..=64).for_each(|signal| assert_eq!(i32::from(ended(None, Some(signal))), 128 + signal));
        assert_eq!(ended(None, None), 125);
    }
}
