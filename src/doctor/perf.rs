//! The kernel's event stream, fault samples and counters (perf_event_open(2)).

use perf_event_open::config::{Cpu, ExtraRecord, Inherit, Mmap, Opts, Priv, Proc, SampleFormat, SampleOn, UseBuildId};
use perf_event_open::count::Counter;
use perf_event_open::event::sw::Software;

use super::who::{Capability, Who};
use super::{Finding, Refusal};
use crate::metric::Metric;
use crate::probe::counters::Counters;
use crate::probe::ring::Rings;

/// Rings of one CPU, as powers of two of their pages: as a launch tries them.
const SIZES: &[u8] = &[7, 6, 5, 4, 3, 2];
/// One fault in so many, the default of a launch that asks for samples.
const EVERY: u64 = 64;

/// What procfs lacks where counters are denied.
const UNWAITED: &str = "of children that nobody waits for, only what was seen alive is counted";

/// Which step was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Open(Refusal),
    Ring(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    /// Fork, exec, exit and mappings.
    pub stream: Result<(), Refused>,
    /// Fault samples with those that the kernel takes for the process, and without.
    pub faults: Result<(), Refused>,
    pub user_faults: Result<(), Refused>,
    /// What the counters' own probe says.
    pub fault_count: Result<(), String>,
    pub task_clock: Result<(), String>,
}

impl Tried {
    pub fn here() -> Tried {
        let counters = Counters::open().read();
        let counted = |metric| match counters.absences.iter().find(|(absent, _)| *absent == metric) {
            Some((_, reason)) => Err(reason.clone()),
            None => Ok(()),
        };
        Tried {
            stream: on_every_cpu(|| Software::Dummy, &stream()),
            faults: on_every_cpu(|| Software::MinorPageFault, &samples(false)),
            user_faults: on_every_cpu(|| Software::MinorPageFault, &samples(true)),
            fault_count: counted(Metric::PerfPageFaults),
            task_clock: counted(Metric::PerfTaskClockNs),
        }
    }

    pub fn findings(&self, who: &Who) -> Vec<Finding> {
        vec![self.event_stream(who), self.fault_samples(who), self.fault_counter(who), self.clock(who)]
    }

    fn event_stream(&self, who: &Who) -> Finding {
        let (item, figure) = ("event_stream", "processes and mappings");
        match &self.stream {
            Ok(()) => Finding::yes(item, figure, "perf event stream"),
            Err(refused) => {
                let lost = "children that live shorter than a tick can be missed, and a mapping's time is a tick's";
                Finding::bounded(item, figure, "procfs, at ticks")
                    .because(format!("{}; {lost}", why(who, refused, 2)))
                    .remedied_by(remedies(who, refused, 2))
            }
        }
    }

    fn fault_samples(&self, who: &Who) -> Finding {
        let (item, figure) = ("fault_samples", "page faults by address");
        match (&self.faults, &self.user_faults) {
            (Ok(()), _) => Finding::yes(item, figure, "perf fault samples"),
            (Err(refused), Ok(())) => Finding::bounded(item, figure, "perf samples, user mode")
                .because(format!("without faults inside system calls, as read(2) has them: {}", why(who, refused, 1)))
                .remedied_by(remedies(who, refused, 1)),
            (Err(_), Err(refused)) => {
                Finding::no(item, figure).because(why(who, refused, 2)).remedied_by(remedies(who, refused, 2))
            }
        }
    }

    fn fault_counter(&self, who: &Who) -> Finding {
        let (item, figure) = ("fault_counter", "page faults of the dead");
        match &self.fault_count {
            Ok(()) => Finding::yes(item, figure, "perf counter, inherited"),
            Err(reason) => Finding::bounded(item, figure, "procfs: stat, cminflt")
                .because(format!("{reason}; {UNWAITED}"))
                .remedied_by(self.counter_remedies(who)),
        }
    }

    fn clock(&self, who: &Who) -> Finding {
        let (item, figure) = ("task_clock", "CPU time of the dead");
        match &self.task_clock {
            Ok(()) => Finding::yes(item, figure, "perf counter, inherited"),
            Err(reason) => Finding::bounded(item, figure, "procfs: stat, cutime")
                .because(format!("{reason}; {UNWAITED}"))
                .remedied_by(self.counter_remedies(who)),
        }
    }

    /// What would let counters be opened: the same as for samples, of which the errors are at hand.
    fn counter_remedies(&self, who: &Who) -> Vec<String> {
        match (&self.user_faults, &self.faults) {
            (Err(refused), _) => remedies(who, refused, 2),
            (Ok(()), Err(refused)) => remedies(who, refused, 1),
            (Ok(()), Ok(())) => Vec::new(),
        }
    }
}

fn stream() -> Opts {
    Opts {
        exclude: Priv { kernel: true, hv: true, ..Priv::default() },
        extra_record: ExtraRecord {
            task: true,
            comm: true,
            mmap: Mmap { code: true, data: true, ext: Some(UseBuildId(false)) },
            ..ExtraRecord::default()
        },
        ..Opts::default()
    }
}

fn samples(user_only: bool) -> Opts {
    Opts {
        exclude: Priv { kernel: user_only, hv: user_only, ..Priv::default() },
        sample_on: SampleOn::Count(EVERY),
        sample_format: SampleFormat { data_addr: true, ..SampleFormat::default() },
        ..Opts::default()
    }
}

/// Opens the event's rings as a launch does; nothing execs meanwhile, so they stay empty. Where that is refused, finds
/// out by which step.
fn on_every_cpu(event: fn() -> Software, options: &Opts) -> Result<(), Refused> {
    let Err(text) = Rings::<()>::open(event(), options, SIZES) else { return Ok(()) };
    let (inherited, least) = (Opts { inherit: Some(Inherit::NewChild), ..options.clone() }, SIZES[SIZES.len() - 1]);
    let mut held = Vec::new();
    for cpu in cpus() {
        let counter = Counter::new(event(), (Proc::CURRENT, Cpu(cpu)), &inherited)
            .map_err(|error| Refused::Open(error.into()))?;
        let sampler = counter.sampler(least).map_err(|error| Refused::Ring(error.into()))?;
        // The ring first, which is a mapping of the other.
        held.push((sampler, counter));
    }
    Err(Refused::Open(Refusal { errno: None, text }))
}

/// The CPUs online, or as many as this process may use where that cannot be read.
fn cpus() -> Vec<u32> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let ranges = online.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    let cpus: Vec<u32> = ranges.flatten().collect();
    match cpus.is_empty() {
        true => (0..std::thread::available_parallelism().map_or(1, |count| count.get() as u32)).collect(),
        false => cpus,
    }
}

/// Whether `kernel.perf_event_paranoid` is above what is needed, and no capability overrides it.
fn too_paranoid(who: &Who, needed: i64) -> Option<i64> {
    let exempt = who.has_on_host(Capability::Perfmon) || who.has_on_host(Capability::SysAdmin);
    who.perf_event_paranoid.filter(|level| *level > needed && !exempt)
}

/// `needed`: the highest `kernel.perf_event_paranoid` under which an ordinary user may do it.
fn why(who: &Who, refused: &Refused, needed: i64) -> String {
    match refused {
        Refused::Open(refusal) => {
            let call = format!("perf_event_open: {}", refusal.text);
            match (refusal.errno, too_paranoid(who, needed)) {
                (Some(libc::EMFILE | libc::ENFILE), _) => format!("{call}: it takes a descriptor a CPU"),
                (Some(libc::EACCES | libc::EPERM), Some(level)) => {
                    format!("{call} (kernel.perf_event_paranoid is {level})")
                }
                _ if who.seccomp_filter => format!("{call} (a seccomp filter is in force)"),
                (Some(libc::ENOSYS), _) => format!("{call}: this kernel has no perf events"),
                _ => call,
            }
        }
        Refused::Ring(refusal) => format!("mmap of a perf ring: {}", refusal.text),
    }
}

fn remedies(who: &Who, refused: &Refused, needed: i64) -> Vec<String> {
    let container = !who.container.is_empty();
    match refused {
        Refused::Open(refusal) => match (refusal.errno, too_paranoid(who, needed)) {
            (Some(libc::EMFILE | libc::ENFILE), _) => vec!["ulimit -n 4096".into()],
            (Some(libc::EACCES | libc::EPERM), Some(_)) => {
                let mut remedies = vec![who.as_host_root(&format!("sysctl kernel.perf_event_paranoid={needed}"))];
                if container {
                    remedies.push("docker run --cap-add PERFMON".into());
                }
                remedies
            }
            _ if who.seccomp_filter => vec![
                "docker run --cap-add PERFMON   (its default profile then lets the call through)".into(),
                "docker run --security-opt seccomp=PROFILE, with perf_event_open allowed in it".into(),
            ],
            (Some(libc::ENOSYS), _) => vec!["a kernel with CONFIG_PERF_EVENTS".into()],
            _ => Vec::new(),
        },
        Refused::Ring(refusal) => match refusal.errno {
            Some(libc::EPERM) => vec![
                "ulimit -l unlimited".into(),
                who.as_host_root(&format!("sysctl kernel.perf_event_mlock_kb={}", (4 << SIZES[0]) + 4)),
            ],
            _ => Vec::new(),
        },
    }
}
