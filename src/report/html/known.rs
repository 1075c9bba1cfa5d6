//! What was true at start, how each figure is known or why it is not, and what the profiling took.

use std::collections::BTreeMap;

use super::markup::{Cell, Html, Table, list};
use crate::event::What;
use crate::metric::Metric;
use crate::report::text::{elide, plain};
use crate::report::{sources as records, terminal, units};
use crate::run::Run;

/// So many variables, packages or paths of a kind are shown.
const MOST: usize = 60;

/// Host, limits, software, and the state of things before the exec.
pub fn conditions(run: &Run) -> Html {
    let (meta, host) = (&run.meta, &run.meta.host);
    let mut entries: Vec<(String, String)> = Vec::new();
    let mut add = |term: &str, text: Option<String>| {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            entries.push((term.to_owned(), text));
        }
    };
    let condition = &meta.condition;
    add("artifacts", Some(condition.artifacts.clone()));
    let state: Vec<String> =
        condition.state.iter().take(MOST).map(|(path, bytes)| format!("{path}: {}", units::bytes(*bytes))).collect();
    add("retained state", Some(state.join(" · ")));
    add("MemAvailable", condition.memory_available_bytes.map(units::bytes));
    add("load", condition.load.clone());
    for (resource, lines) in &condition.pressure {
        add(&format!("pressure: {resource}"), Some(lines.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    add("CPU", host.cpu_model.clone());
    let cpus = host.logical_cpus.map(|all| match &host.affinity {
        Some(list) => format!("{all} online, allowed {list}"),
        None => format!("{all} online"),
    });
    add("CPUs", cpus);
    let quota = host.cgroups.cpu_quota.as_ref();
    add("CPU quota", quota.map(|quota| format!("{:.2} cores, by {}", quota.cpus(), quota.file)));
    add("NUMA nodes", host.numa_nodes.map(|count| count.to_string()));
    add("memory", host.memory_total_bytes.map(units::bytes));
    let limit = host.cgroups.memory_limit.as_ref();
    add("memory limit", limit.map(|limit| format!("{}, by {}", units::bytes(limit.bytes), limit.file)));
    let high = host.cgroups.memory_high.as_ref();
    add("memory.high", high.map(|limit| format!("{}, by {}", units::bytes(limit.bytes), limit.file)));
    add("swap", host.swap_total_bytes.map(units::bytes));
    let huge = &host.transparent_huge_pages;
    add("transparent huge pages", huge.enabled.clone());
    add("swappiness", host.swappiness.map(|value| value.to_string()));
    add("multi-generational LRU", host.lru_gen.clone());
    add("DAMON", host.damon.as_ref().filter(|running| !running.is_empty()).map(|running| running.join(", ")));
    add("perf_event_paranoid", host.perf_event_paranoid.map(|value| value.to_string()));
    let kernel = [&host.kernel_release, &host.kernel_version, &host.machine];
    add("kernel", Some(kernel.into_iter().flatten().cloned().collect::<Vec<_>>().join(" · ")));
    add("virtual machine", Some(host.virtualisation.join(" · ")));
    add("container", Some(host.container.join(" · ")));
    add("directory", Some(meta.directory.clone()));
    let software = &host.software;
    add("program", software.program.as_ref().map(|program| program.path.clone()));
    add("interpreter", software.interpreter.as_ref().map(|program| program.path.clone()));
    if let Some(python) = &software.python {
        let version = python.version.as_deref().unwrap_or("version not known");
        add("Python", Some(format!("{version} · {}", python.path)));
        let packages: Vec<String> =
            python.packages.iter().take(MOST).map(|(name, version)| format!("{name} {version}")).collect();
        add("packages", Some(packages.join(" · ")));
    }
    if let Some(git) = &software.git {
        let parts = [git.reference.as_deref(), git.commit.as_deref()];
        add("repository", Some(parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")));
    }
    for boundary in meta.storage.iter().take(MOST) {
        let chain = boundary.chains.first().map_or(boundary.name.as_str(), String::as_str);
        let why = boundary.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        add("storage", Some(format!("{chain}{why}")));
    }
    let pairs = |map: &BTreeMap<String, String>| -> String {
        map.iter()
            .take(MOST)
            .map(|(name, value)| format!("{name}={}", elide(&plain(value), 200)))
            .collect::<Vec<_>>()
            .join("  ")
    };
    add("environment", Some(pairs(&meta.environment)));
    add("variables of the stages", Some(pairs(&meta.variables)));
    list(&entries)
}

/// By which source each kind of event is known, what is absent, and why.
pub fn sources(run: &Run) -> Html {
    let meta = &run.meta;
    let mut html = Html::default();
    html.paragraphs(&records::sentence(meta).into_iter().collect::<Vec<_>>());
    let mut known = Table::new(None, ["what", "known from", "because", "records lost"].map(Cell::text).to_vec());
    let line = |(what, source): (&String, &crate::run::sources::Source)| {
        vec![
            Cell::text(what.clone()),
            Cell::text(source.used.clone()),
            Cell::text(source.because.clone().unwrap_or_default()),
            Cell::text(source.lost_records.filter(|lost| *lost > 0).map(units::count).unwrap_or_default()),
        ]
    };
    known.group("", meta.sources.iter().map(line).collect());
    html.piece(&known.html());

    let mut entries = vec![(
        "tick".to_owned(),
        format!(
            "{}; {} samples. A level between two samples may have been higher: a largest sample is a lower bound.",
            units::duration(meta.interval_ns),
            units::count(run.samples.len() as u64)
        ),
    )];
    let error = meta.peaks.counter_error_bytes.map(|bytes| format!("{} a process image", units::bytes(bytes)));
    let error =
        error.or(meta.peaks.counter_error_bytes_per_thread.map(|bytes| format!("{} a thread", units::bytes(bytes))));
    if let Some(error) = error {
        let text =
            format!("the kernel's mark of a resident set may be off by {error}; the bounds of peaks have it in them");
        entries.push(("peaks".to_owned(), text));
    }
    let devices = &meta.device_probe;
    if !devices.sources.is_empty() {
        let every = devices.mean_interval_ns.map(|ns| format!(", a reading every {}", units::duration(ns)));
        let text =
            format!("{}; {} readings{}", devices.sources.join(", "), devices.readings, every.unwrap_or_default());
        entries.push(("devices".to_owned(), text));
    }
    entries.extend(devices.reasons.iter().map(|why| ("devices".to_owned(), why.clone())));
    if let Some(group) = &meta.cgroup {
        entries.push(("control group".to_owned(), format!("the launch had its own, version {}", group.version)));
    }
    entries.push(("stage definitions".to_owned(), format!("{} (SHA-256 {})", meta.stages.name, meta.stages_digest)));
    html.piece(&list(&entries));

    let reasons = absences(run);
    let mut absent = Table::new(None, vec![Cell::text("absent"), Cell::text("why")]);
    let line = |(metric, why): &(Metric, String)| vec![Cell::text(metric.name()), Cell::text(why.clone())];
    absent.group("", reasons.iter().map(line).collect());
    let absent = absent.html();
    if !absent.is_empty() {
        html.raw("<h3>Absent at some time, or always</h3>\n").piece(&absent);
    }
    html
}

/// Each metric that was absent at some time, with the last reason.
fn absences(run: &Run) -> Vec<(Metric, String)> {
    let mut reasons: BTreeMap<Metric, String> =
        run.meta.absent.iter().map(|absent| (absent.metric, absent.reason.clone())).collect();
    for event in &run.events {
        if let What::Absent { metric, reason } = &event.what {
            reasons.insert(*metric, reason.clone());
        }
    }
    reasons.into_iter().collect()
}

/// What stagemark took of the machine.
pub fn cost(run: &Run) -> Html {
    let mut html = Html::default();
    let Some(cost) = &run.meta.cost else {
        html.element("p", None, "Not recorded: the command was still running, or the profiler was killed.");
        return html;
    };
    html.paragraphs(&terminal::cost(run).into_iter().collect::<Vec<_>>());
    let parts = [
        ("CPU time", Some(cost.cpu_ns)),
        ("of it the recorder's thread", cost.recorder_cpu_ns),
        ("of it the helper processes", cost.helper_cpu_ns),
    ];
    let known = parts.into_iter().filter_map(|(name, ns)| Some((name.to_owned(), units::duration(ns?))));
    html.piece(&list(&known.collect::<Vec<_>>()));
    html
}
