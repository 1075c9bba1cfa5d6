//! What a model's start-up really costs, and when it is really ready.
//!
//! `stagemark run -- COMMAND` runs a launch command unchanged, watches its whole process tree, and says at each named
//! readiness stage how much of the model's payload is mapped, how much of it is resident in host memory, what the
//! processes hold and what it took to get there.
//!
//! # The picture
//!
//! ```text
//! COMMAND ─► launch ─┬─► the kernel's records: fork, exec, end,    ┐
//!                    │   mapping; with --faults each fault's byte  │
//!                    ├─► tick: tree, mappings, residency, memory,  ├─► record ─► run folder
//!                    │   faults, I/O, CPU, waits, pressure         │
//!                    ├─► watch: log, notify, exit                  │
//!                    └─► ask: http, tcp, unix, file                ┘
//! run folder ─► run (load) ─► stage (marks) ─► account (StageTable) ─► finding ─► report: csv | terminal | svg | png | html | json | md | perfetto
//! run folders ─► the same of each ─► compare (Comparison, or a refusal) ─► report, the same
//! ```
//!
//! Everything right of the run folder is pure: the same files give the same reports, byte for byte, whether they are
//! made when the launch ends or a year later.
//!
//! # The rooms
//!
//! Ground floor first; a room uses only those above it in this list.
//!
//! | room | what it is for |
//! |---|---|
//! | [`metric`] | THE table of metrics: name with unit, kind, meaning, what it includes and overlaps |
//! | [`clock`] | nanoseconds since start, on `CLOCK_MONOTONIC` |
//! | [`units`] | exact integers as people read them |
//! | [`artifact`] | what a model file is: formats, payload ranges, identity; which files a launch is about |
//! | [`sys`] | every unsafe line of the crate, each with its reason |
//! | [`event`], [`sample`] | what is seen: things that happen, and values at a time |
//! | [`host`] | what this machine, its limits and the working directory are |
//! | [`proc`] | files of `/proc/PID`: kept open, parsed by hand |
//! | [`probe`] | one file or folder a probe, each asking the kernel one kind of question: residency, page tables, mappings and their records, processes and ranks, what they share, faults, storage, pressure, waits, control group |
//! | [`launch`] | child, output pump, signals, exit status, reaping; the tree of processes |
//! | [`watch`] | what the launch says: its log, its notifications |
//! | [`run`] | a run folder: its files, written and read |
//! | [`stage`] | stage files; events → marks (pure) |
//! | [`account`] | run → stage table (pure) |
//! | [`compare`] | runs side by side at the same stopping event, or a refusal (pure) |
//! | [`finding`] | stage table → what it says of the launch: rules, each on two kinds of evidence (pure) |
//! | [`report`] | stage table or comparison → csv, terminal, svg, png, html (pure) |
//! | [`progress`] | one line on standard error that says how far a verb is |
//! | [`budget`] | stage table → whether limits were kept (pure) |
//! | [`ask`] | asks what a stage waits for and nobody says: requests, connections, files |
//! | [`cache`] | start conditions: artifacts taken out of the page cache or read into it, and verified |
//! | [`record`] | joins launch, probes, watchers and matcher; writes the run folder |
//! | [`ab`] | the verb that runs several commands by turns, and compares them |
//! | [`inspect`] | the verb that describes model files without running anything |
//! | [`doctor`] | the verb that says what may be measured here, and what would change it |
//! | [`copy_paths`] | the verb that measures how fast tensors are copied out of mappings and memory here |
//! | [`catalogue`] | the verb that lists, shows, checks and tries stage files |
//! | [`cli`] | the command line, as plain options |

pub mod ab;
pub mod account;
pub mod artifact;
pub mod ask;
pub mod budget;
pub mod cache;
pub mod catalogue;
pub mod cli;
pub mod clock;
pub mod compare;
pub mod copy_paths;
pub mod demo;
pub mod doctor;
pub mod event;
pub mod finding;
pub mod host;
pub mod inspect;
pub mod launch;
pub mod metric;
pub mod probe;
pub mod proc;
pub mod progress;
pub mod record;
pub mod report;
pub mod run;
pub mod sample;
pub mod stage;
#[allow(unsafe_code)]
pub mod sys;
#[cfg(test)]
mod testing;
pub mod units;
pub mod watch;
