//! Asks what has to be asked: requests, connections, files, for as long as a stage waits for one of them.
//!
//! One thread a condition, with one attempt in flight; it begins when the condition may decide something (its stage's
//! `after` is reached) and ends with the first acceptable answer, or when its stage is reached otherwise. Whatever is
//! refused, reset, late or wrong is "not yet". An attempt in flight never holds the end of a run up: what it brings after
//! that is not heard.
//!
//! # What the times mean
//!
//! The time of an accepted attempt is when its last byte was read here; the last attempt that was not accepted began
//! before the launch was ready for it, and the uncertainty reaches back to that. Where the first attempt of all was
//! accepted it reaches back to the start.

pub mod already;
mod connect;
pub mod http;
mod listening;
mod rows;
mod work;

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::{Clock, Mono};
use crate::event::{Evidence, Probe, What};
use crate::run::responses::{ACCEPTED, FIRST};
use crate::stage::asked::Values;
use crate::stage::{Condition, Wanted};
use crate::watch::{Observed, Seen};
pub use http::Secrets;
use rows::Rows;
use work::Answer;

/// The stage whose request is repeated by `--repeat-response`.
const REPEATED: &str = "first_response";

/// Time between two rounds of a workload.
const POLL: Duration = Duration::from_millis(100);

/// How much of a file or a response's body is looked at, in bytes.
const MOST_MATCHED: usize = 1 << 20;

/// How much of an accepted response is kept, in bytes.
const MOST_KEPT: usize = 64 * 1024;

/// How long the end of a run waits for attempts in flight: one that was answered before the end is read by then…
const LAST: Duration = Duration::from_millis(20);

/// … and how much longer, where the head of its answer is there already.
const LAST_OF_AN_ANSWER: Duration = Duration::from_millis(80);

/// What came of one attempt.
struct Attempt {
    /// `None` if it was accepted, and otherwise what was wrong, in a few words that are the same for the same reason.
    wrong: Option<String>,
    first_byte: Option<Mono>,
    bytes: Option<u64>,
    /// A body was not read to its end: the rest could not change what is thought of it.
    is_cut: bool,
    /// The response as it is kept, if it was accepted.
    response: Option<String>,
}

impl Attempt {
    fn not_yet(wrong: impl Into<String>) -> Attempt {
        Attempt { wrong: Some(wrong.into()), ..Attempt::accepted() }
    }

    fn accepted() -> Attempt {
        Attempt { wrong: None, first_byte: None, bytes: None, is_cut: false, response: None }
    }
}

/// Everything that is being asked. Clones are of the same thing.
#[derive(Clone)]
pub struct Asking(Arc<Shared>);

struct Shared {
    clock: Clock,
    secrets: Secrets,
    /// How often the first response's request is repeated after it was accepted.
    repeat: u64,
    state: Mutex<State>,
    /// Something ended: an attempt, or a wish.
    changed: Condvar,
}

struct State {
    /// `None` once the run is over.
    sender: Option<Sender<Seen>>,
    asked: Vec<Asked>,
    next: u64,
    /// The first response's request is being repeated: a workload would change what that takes.
    repeating: bool,
}

/// One condition that is being asked.
struct Asked {
    number: u64,
    wanted: Wanted,
    /// The attempt in flight, as it will be told, and when it began.
    in_flight: Option<(Mono, Probe)>,
    /// The head of a response to it was read.
    is_answered: bool,
    rows: Rows,
}

impl Asking {
    /// Asks nothing yet. `clock`'s zero is the start of the launch.
    pub fn new(clock: Clock, secrets: Secrets, repeat: u64, sender: Sender<Seen>) -> Asking {
        let state = State { sender: Some(sender), asked: Vec::new(), next: 0, repeating: false };
        Asking(Arc::new(Shared { clock, secrets, repeat, state: Mutex::new(state), changed: Condvar::new() }))
    }

    /// From now on exactly this is asked. What is asked already goes on.
    pub fn follow(&self, wanted: Vec<Wanted>) {
        let mut state = self.0.state();
        if state.sender.is_none() {
            return;
        }
        let is_same = |asked: &Asked, wanted: &Wanted| {
            asked.wanted.stage == wanted.stage
                && asked.wanted.condition == wanted.condition
                && values_of(&asked.wanted) == values_of(wanted)
        };
        let (goes_on, ended): (Vec<Asked>, Vec<Asked>) =
            std::mem::take(&mut state.asked).into_iter().partition(|asked| wanted.iter().any(|w| is_same(asked, w)));
        state.asked = goes_on;
        for asked in ended {
            state.tell(asked.end());
        }
        for wanted in wanted {
            if state.asked.iter().any(|asked| is_same(asked, &wanted)) {
                continue;
            }
            state.begin(&self.0, wanted);
        }
        self.0.changed.notify_all();
    }

    /// The run is over: attempts in flight have a moment to be answered, and what comes later is not heard.
    pub fn finish(&self) {
        let state = self.0.state();
        let in_flight = |state: &mut State| state.asked.iter().any(|asked| asked.in_flight.is_some());
        let answered =
            |state: &mut State| state.asked.iter().any(|asked| asked.in_flight.is_some() && asked.is_answered);
        let changed = &self.0.changed;
        let (state, _) = changed.wait_timeout_while(state, LAST, in_flight).unwrap_or_else(PoisonError::into_inner);
        let (mut state, _) =
            changed.wait_timeout_while(state, LAST_OF_AN_ANSWER, answered).unwrap_or_else(PoisonError::into_inner);
        for asked in std::mem::take(&mut state.asked) {
            state.tell(asked.end());
        }
        state.sender = None;
        self.0.changed.notify_all();
    }
}

impl Asked {
    /// Nobody asks any more: the rows that are still to be written.
    fn end(mut self) -> Vec<(Mono, u64, Probe)> {
        let mut rows = Vec::new();
        if let Some((began, probe)) = self.in_flight.take() {
            let now = Mono::now();
            let outcome = "no answer before the asking ended".to_string();
            rows = self.rows.attempt(now, now.since(began), Probe { outcome, ..probe });
        }
        rows.extend(self.rows.end());
        rows
    }
}

/// The variables that stand in a condition.
fn values_of(wanted: &Wanted) -> Values {
    match &wanted.condition {
        // Its headers and its body may have them too.
        Condition::Http(_) | Condition::Work(_) => wanted.values.clone(),
        condition => {
            let names = condition.names();
            wanted
                .values
                .iter()
                .filter(|(name, _)| names.contains(name.as_str()))
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect()
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Whole at every moment at which a panic could leave it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread of one condition.
    fn ask(&self, number: u64, wanted: &Wanted) {
        let mut asker = Asker::of(&wanted.condition, &wanted.values, &self.secrets);
        let by = evidence(&wanted.condition);
        let condition = wanted.condition.digest();
        let target = self.secrets.clean(&asker.target());
        if let Some(text) = asker.warning(&wanted.stage) {
            let text = self.secrets.clean(&text);
            self.state().send(Mono::now(), Some(0), Observed::Event(What::Warning { text }));
        }
        if let Asker::Work(_) = asker {
            let repeating = |state: &mut State| state.repeating && state.of(number).is_some();
            drop(self.changed.wait_while(self.state(), repeating));
        }
        let mut refused = None;
        for attempt in 1.. {
            let began = Mono::now();
            let probe = Probe {
                stage: wanted.stage.clone(),
                by,
                condition: condition.clone(),
                target: target.clone(),
                attempt,
                began: self.clock.at(began),
                accepted: false,
                outcome: String::new(),
                first_byte: None,
                bytes: None,
                is_cut: false,
                without_row: 0,
            };
            match self.state().of(number) {
                Some(asked) => (asked.in_flight, asked.is_answered) = (Some((began, probe.clone())), false),
                None => return,
            }
            let listener = Listener {
                tell: &|answer| self.tell_answer(&wanted.stage, answer),
                live: &|| self.state().of(number).is_some(),
                heard: &|| self.state().of(number).into_iter().for_each(|asked| asked.is_answered = true),
            };
            let answer = asker.attempt(&listener);
            let ended = Mono::now();
            let mut state = self.state();
            let Some(asked) = state.of(number) else {
                self.changed.notify_all();
                return;
            };
            asked.in_flight = None;
            let accepted = answer.wrong.is_none();
            let since = if accepted { refused.unwrap_or(self.clock.start()) } else { began };
            let probe = Probe {
                accepted,
                outcome: answer.wrong.as_ref().map_or_else(|| ACCEPTED.to_string(), |wrong| self.secrets.clean(wrong)),
                first_byte: answer.first_byte.map(|at| self.clock.at(at)),
                bytes: answer.bytes,
                is_cut: answer.is_cut,
                ..probe
            };
            let rows = asked.rows.attempt(ended, ended.since(since), probe);
            if accepted {
                // It stays among what is asked until it is wanted no more, so that nobody asks it again.
                state.repeating |= self.repeat > 0 && wanted.stage == REPEATED && matches!(asker, Asker::Http(_));
                if let Some(text) = answer.response {
                    let what = Observed::Response { stage: wanted.stage.clone(), part: wanted.part, text };
                    state.send(ended, Some(0), what);
                }
            }
            state.tell(rows);
            self.changed.notify_all();
            if accepted {
                drop(state);
                if wanted.stage == REPEATED
                    && let Asker::Http(request) = &mut asker
                {
                    let first = Answer {
                        request: FIRST.to_string(),
                        attempt,
                        began,
                        ended,
                        first_byte: answer.first_byte,
                        bytes: answer.bytes,
                        wrong: None,
                    };
                    self.repeat(request, first);
                    self.state().repeating = false;
                    self.changed.notify_all();
                }
                return;
            }
            refused = Some(began);
            let until = Instant::now() + asker.poll();
            while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                if state.of(number).is_none() {
                    return;
                }
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl Shared {
    /// Asks the same again, one after the other: what a response takes once the first is over.
    fn repeat(&self, request: &mut http::Request, first: Answer) {
        if self.repeat == 0 {
            return;
        }
        self.tell_answer(REPEATED, first);
        for number in 1..=self.repeat {
            if self.state().sender.is_none() {
                return;
            }
            let began = Mono::now();
            let Attempt { wrong, first_byte, bytes, .. } = request.attempt(&|| {});
            let (request, ended) = (format!("repeat {number}"), Mono::now());
            self.tell_answer(REPEATED, Answer { request, attempt: 1, began, ended, first_byte, bytes, wrong });
        }
    }

    fn tell_answer(&self, stage: &str, answer: Answer) {
        let at = |moment| self.clock.at(moment).0.to_string();
        let outcome = answer.wrong.map_or_else(|| ACCEPTED.to_string(), |wrong| self.secrets.clean(&wrong));
        let row = vec![
            stage.to_string(),
            self.secrets.clean(&answer.request),
            answer.attempt.to_string(),
            at(answer.began),
            answer.first_byte.map(at).unwrap_or_default(),
            at(answer.ended),
            answer.ended.since(answer.began).to_string(),
            answer.bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
            outcome,
        ];
        self.state().send(answer.ended, Some(0), Observed::Answer(row));
    }
}

impl State {
    fn of(&mut self, number: u64) -> Option<&mut Asked> {
        self.asked.iter_mut().find(|asked| asked.number == number)
    }

    fn begin(&mut self, shared: &Arc<Shared>, wanted: Wanted) {
        let number = self.next;
        self.next += 1;
        let stage = wanted.stage.clone();
        self.asked.push(Asked {
            number,
            wanted: wanted.clone(),
            in_flight: None,
            is_answered: false,
            rows: Rows::default(),
        });
        let own = shared.clone();
        let started = std::thread::Builder::new().name("asking".to_string()).spawn(move || own.ask(number, &wanted));
        if let Err(error) = started {
            // It stays among what is asked, so that it is not tried again at each change.
            let what = What::warning(format!("stage `{stage}` cannot be asked for: {error}"));
            self.send(Mono::now(), Some(0), Observed::Event(what));
        }
    }

    fn tell(&self, rows: Vec<(Mono, u64, Probe)>) {
        for (at, uncertainty_ns, probe) in rows {
            self.send(at, Some(uncertainty_ns), Observed::Event(What::Probe(probe)));
        }
    }

    fn send(&self, at: Mono, uncertainty_ns: Option<u64>, what: Observed) {
        if let Some(sender) = &self.sender {
            // Nobody listening any more is no error of ours.
            let _ = sender.send(Seen { at, uncertainty_ns, what });
        }
    }
}

fn evidence(condition: &Condition) -> Evidence {
    match condition {
        Condition::Tcp(_) => Evidence::Tcp,
        Condition::Unix(_) => Evidence::Unix,
        Condition::File(_) => Evidence::File,
        _ => Evidence::Http,
    }
}

/// Who asked for an attempt.
struct Listener<'a> {
    /// Hears of each of many requests.
    tell: &'a (dyn Fn(Answer) + Sync),
    /// Says whether anybody still wants to know.
    live: &'a (dyn Fn() -> bool + Sync),
    /// Is told when the head of a response is there.
    heard: &'a (dyn Fn() + Sync),
}

/// One condition, ready to be asked.
enum Asker<'a> {
    Http(Box<http::Request<'a>>),
    Work(work::Work<'a>),
    Tcp(connect::Tcp),
    Unix(connect::Unix),
    File(connect::File<'a>),
    /// It cannot be, and why.
    None(String),
}

impl<'a> Asker<'a> {
    fn of(condition: &'a Condition, values: &'a BTreeMap<String, String>, secrets: &'a Secrets) -> Asker<'a> {
        let asker = match condition {
            Condition::Http(http) => http::Request::of(http, values, secrets).map(|of| Asker::Http(Box::new(of))),
            Condition::Work(work) => work::Work::of(work, values, secrets).map(Asker::Work),
            Condition::Tcp(tcp) => connect::Tcp::of(tcp, values).map(Asker::Tcp),
            Condition::Unix(unix) => connect::Unix::of(unix, values).map(Asker::Unix),
            Condition::File(file) => connect::File::of(file, values).map(Asker::File),
            _ => Err("nothing that could be asked".to_string()),
        };
        asker.unwrap_or_else(Asker::None)
    }

    fn target(&self) -> String {
        match self {
            Asker::Http(request) => request.url().to_string(),
            Asker::Work(work) => work.shown().to_string(),
            Asker::Tcp(tcp) => tcp.address.clone(),
            Asker::Unix(unix) => unix.path.clone(),
            Asker::File(file) => file.shown(),
            Asker::None(_) => String::new(),
        }
    }

    /// What the user should know before it is asked.
    fn warning(&self, stage: &str) -> Option<String> {
        let request = match self {
            Asker::Http(request) => Some(&**request),
            Asker::Work(work) => work.first(),
            _ => None,
        };
        let (target, host, secret_in_clear) = match (self, request) {
            (_, Some(request)) => (request.url(), request.host(), request.tells_a_secret_in_clear()),
            (Asker::Tcp(tcp), None) => (tcp.address.as_str(), tcp.host(), false),
            _ => return None,
        };
        if connect::is_this_machine(host) {
            return None;
        }
        let more = if secret_in_clear { ", and it is sent a secret without encryption" } else { "" };
        Some(format!("stage `{stage}` asks {target}, which is not this machine by its loopback{more}"))
    }

    fn poll(&self) -> Duration {
        match self {
            Asker::Http(request) => request.poll(),
            Asker::Work(_) => POLL,
            Asker::Tcp(tcp) => tcp.poll,
            Asker::Unix(unix) => unix.poll,
            Asker::File(file) => file.poll,
            Asker::None(_) => Duration::from_secs(3600),
        }
    }

    fn attempt(&mut self, listener: &Listener) -> Attempt {
        match self {
            Asker::Http(request) => request.attempt(listener.heard),
            Asker::Work(work) => work.attempt(listener),
            Asker::Tcp(tcp) => tcp.attempt(),
            Asker::Unix(unix) => unix.attempt(),
            Asker::File(file) => file.attempt(),
            Asker::None(why) => Attempt::not_yet(why.clone()),
        }
    }
}

/// Why a connection was not had or not kept, in a few words.
fn words(error: &std::io::Error) -> String {
    use std::io::ErrorKind::*;
    match error.kind() {
        ConnectionRefused => "refused".to_string(),
        ConnectionReset | ConnectionAborted | BrokenPipe => "reset".to_string(),
        TimedOut | WouldBlock => "timed out".to_string(),
        UnexpectedEof => "closed before the response was over".to_string(),
        NotFound => "not there".to_string(),
        PermissionDenied => "permission denied".to_string(),
        _ => error.to_string().chars().take(200).collect(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
