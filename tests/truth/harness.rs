//! Runs the cases, two at a time where they allow it, and prints their table in the order in which they are listed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::cases;
use crate::claim::{Claim, Wrong};
use crate::needs::Need;

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    needs: &'static [Need],
    run: fn(&Bench) -> Vec<Claim>,
    alone: bool,
}

impl Case {
    pub const fn new(name: &'static str, run: fn(&Bench) -> Vec<Claim>) -> Case {
        Case { name, needs: &[], run, alone: false }
    }

    /// What the machine must have for it.
    #[allow(dead_code)]
    pub const fn needs(self, needs: &'static [Need]) -> Case {
        Case { needs, ..self }
    }

    /// No other case runs at the same time: it changes something of the whole machine, or counts its time.
    #[allow(dead_code)]
    pub const fn alone(self) -> Case {
        Case { alone: true, ..self }
    }
}

/// How a case came out.
enum Outcome {
    Claims(Vec<Claim>),
    /// It could not make its claims: what it panicked with.
    Broke(String),
    NotRun(String),
}

struct Finished {
    outcome: Outcome,
    took: Duration,
}

/// What is asked of the program: a part of libtest's arguments.
#[derive(Default)]
struct Arguments {
    filters: Vec<String>,
    skip: Vec<String>,
    exact: bool,
    list: bool,
    threads: Option<usize>,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Arguments {
        let mut arguments = Arguments::default();
        while let Some(word) = words.next() {
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag.to_owned(), Some(value.to_owned())),
                _ => (word.clone(), None),
            };
            match flag.as_str() {
                "--list" => arguments.list = true,
                "--exact" => arguments.exact = true,
                "--skip" => arguments.skip.extend(value.or_else(|| words.next())),
                "--test-threads" => {
                    arguments.threads = value.or_else(|| words.next()).and_then(|number| number.parse().ok());
                }
                // libtest's, with a value that has no meaning here.
                "--format" | "--color" | "--logfile" | "-Z" | "--shuffle-seed" => {
                    if value.is_none() {
                        words.next();
                    }
                }
                // libtest's, without one: --nocapture, --ignored, -q…
                _ if flag.starts_with('-') => {}
                _ => arguments.filters.push(word),
            }
        }
        arguments
    }

    fn chooses(&self, name: &str) -> bool {
        let fits = |filter: &String| if self.exact { name == filter } else { name.contains(filter.as_str()) };
        (self.filters.is_empty() || self.filters.iter().any(fits)) && !self.skip.iter().any(fits)
    }
}

thread_local! {
    /// Where and with what this thread panicked last.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The program: a table, and a status that is not 0 where something failed.
pub fn main(arguments: impl Iterator<Item = String>) -> ExitCode {
    let arguments = Arguments::parse(arguments);
    let cases: Vec<Case> = cases::all().filter(|case| arguments.chooses(case.name)).collect();
    if arguments.list {
        cases.iter().for_each(|case| println!("{}: test", case.name));
        return ExitCode::SUCCESS;
    }
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.payload_as_str().unwrap_or("it panicked");
        let place = panic.location().map_or_else(String::new, |at| format!("{}:{}: ", at.file(), at.line()));
        let told = format!("{place}{text}");
        PANIC.with(|last| last.replace(told));
    }));
    let begun = Instant::now();
    println!("{}", line("CASE", ["CLAIM", "TRUTH", "FIGURE"], "VERDICT"));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.unwrap_or(processors).max(1);
    let printer = Mutex::new(Printer::new(&cases));
    let numbered: Vec<(usize, Case)> = cases.iter().copied().enumerate().collect();
    let (alone, together): (Vec<_>, Vec<_>) = numbered.into_iter().partition(|(_, case)| case.alone);
    run_all(&together, threads, &printer);
    run_all(&alone, 1, &printer);
    let printer = printer.into_inner().unwrap();
    printer.conclude(cases.len(), begun.elapsed())
}

fn run_all(cases: &[(usize, Case)], threads: usize, printer: &Mutex<Printer>) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(cases.len()) {
            scope.spawn(|| {
                while let Some((index, case)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let finished = run(case);
                    printer.lock().unwrap().take(*index, finished);
                }
            });
        }
    });
}

/// So often a case is run whose bounds are true, and wider than stated.
const RUNS: u32 = 4;

/// Whether some claims do not hold, and each of them for its bounds' width alone.
fn are_only_wide(claims: &[Claim]) -> bool {
    let mut wrong = claims.iter().filter_map(|claim| claim.verdict().err()).peekable();
    wrong.peek().is_some() && wrong.all(|wrong| matches!(wrong, Wrong::Wide(_)))
}

fn run(case: &Case) -> Finished {
    let begun = Instant::now();
    let outcome = match case.needs.iter().find_map(|need| need.lacking()) {
        Some(why) => Outcome::NotRun(why),
        None => {
            let made = std::panic::catch_unwind(AssertUnwindSafe(|| {
                // Where others have the processor for most of the time the looks of a run may all be cut short: then it is
                // run again. What is untrue in any run has failed.
                let mut claims = (case.run)(&Bench::new());
                for _ in 1..RUNS {
                    if !are_only_wide(&claims) {
                        break;
                    }
                    claims = (case.run)(&Bench::new());
                }
                claims
            }));
            match made {
                Ok(claims) if claims.is_empty() => Outcome::Broke("it claims nothing".into()),
                Ok(claims) => Outcome::Claims(claims),
                Err(_) => Outcome::Broke(PANIC.with(RefCell::take)),
            }
        }
    };
    Finished { outcome, took: begun.elapsed() }
}

/// Prints each case once all before it are printed.
struct Printer<'c> {
    cases: &'c [Case],
    next: usize,
    waiting: BTreeMap<usize, Finished>,
    passed: usize,
    claims: usize,
    failed: Vec<&'static str>,
    not_run: Vec<&'static str>,
    slowest: Vec<(Duration, &'static str)>,
}

impl<'c> Printer<'c> {
    fn new(cases: &'c [Case]) -> Printer<'c> {
        Printer {
            cases,
            next: 0,
            waiting: BTreeMap::new(),
            passed: 0,
            claims: 0,
            failed: Vec::new(),
            not_run: Vec::new(),
            slowest: Vec::new(),
        }
    }

    fn take(&mut self, index: usize, finished: Finished) {
        self.waiting.insert(index, finished);
        while let Some(finished) = self.waiting.remove(&self.next) {
            self.print(self.cases[self.next].name, finished);
            self.next += 1;
        }
    }

    fn print(&mut self, name: &'static str, Finished { outcome, took }: Finished) {
        self.slowest.push((took, name));
        match outcome {
            Outcome::Claims(claims) => {
                let verdicts: Vec<Result<(), Wrong>> = claims.iter().map(Claim::verdict).collect();
                self.claims += claims.len();
                if verdicts.iter().all(Result::is_ok) {
                    self.passed += 1;
                } else {
                    self.failed.push(name);
                }
                for (claim, verdict) in claims.iter().zip(verdicts) {
                    let told = verdict.map_or_else(|wrong| format!("WRONG: {}", wrong.why()), |()| "ok".to_owned());
                    println!("{}", line(name, claim.cells().each_ref().map(String::as_str), &told));
                }
            }
            Outcome::Broke(why) => {
                self.failed.push(name);
                println!("{name:<NAME$}  BROKE: {why}");
            }
            Outcome::NotRun(why) => {
                self.not_run.push(name);
                println!("{name:<NAME$}  not run: {why}");
            }
        }
    }

    fn conclude(mut self, cases: usize, took: Duration) -> ExitCode {
        self.slowest.sort_by(|left, right| right.cmp(left));
        let slowest: Vec<String> =
            self.slowest.iter().take(5).map(|(took, name)| format!("{name} {:.1} s", took.as_secs_f64())).collect();
        println!(
            "\n{cases} cases, {} claims: {} passed, {} failed, {} not run; {:.1} s (slowest: {})",
            self.claims,
            self.passed,
            self.failed.len(),
            self.not_run.len(),
            took.as_secs_f64(),
            slowest.join(", ")
        );
        if !self.not_run.is_empty() {
            println!("not run: {}", self.not_run.join(", "));
        }
        if !self.failed.is_empty() {
            // In libtest's form: a name a line.
            println!("\nfailures:");
            self.failed.iter().for_each(|name| println!("    {name}"));
        }
        let all = std::env::var_os("STAGEMARK_TRUTH_ALL").is_some_and(|value| value == "1");
        let complete = self.not_run.is_empty() || !all;
        if !complete {
            println!("STAGEMARK_TRUTH_ALL=1: what was not run is a failure");
        }
        if self.failed.is_empty() && complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

const NAME: usize = 38;
/// Words beyond this are left out of a cell.
const LONGEST: usize = 90;

fn line(name: &str, cells: [&str; 3], verdict: &str) -> String {
    let [what, truth, figure] = cells.map(|cell| match cell.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &cell[..at]),
        None => cell.to_owned(),
    });
    format!("{name:<NAME$}  {what:<54}  {truth:<27}  {figure:<27}  {verdict}")
}
