//! Commands that were killed: by the kernel for want of memory, or by somebody.

use crate::bench::{Bench, MIB};
use crate::claim::{Claim, Figure};
use crate::harness::Case;
use crate::memory_group::Group;
use crate::needs::Need;
use crate::support::reference_loader;

pub const CASES: &[Case] = &[
    Case::new("killed_for_want_of_memory", out_of_memory).needs(&[Need::Root, Need::CgroupV1("memory")]),
    Case::new("killed_by_somebody", by_somebody),
];

const LIMIT: u64 = 64 * MIB;

fn out_of_memory(bench: &Bench) -> Vec<Claim> {
    let group = Group::limited(LIMIT).expect("the need was met");
    // A worker puts itself into the group; its parent, outside, lives on.
    let script = bench.script("grow", "mark begun\n anon a 256M\n write a 0 256M\n");
    let shell = "sh -c 'echo $$ >\"$1/cgroup.procs\" && exec \"$2\" \"$3\" acts \"$4\" \"$5\"' sh \"$@\"; exit 3";
    let mut launch = bench.command(["sh", "-c", shell, "sh"]);
    let truth = launch.truth_path();
    launch.arguments([group.0.as_path()]).arguments(reference_loader()).arguments([script, truth]);
    let run = launch.run();
    let death = run.run.json()["death"].clone();
    let worker = run.truth[0].pid;
    let told = death["groups"].as_array().into_iter().flatten().find(|told| told["group"] == group.0.to_str().unwrap());
    let told = told.cloned().unwrap_or_default();
    let number = |value: &serde_json::Value| {
        value.as_u64().map_or_else(|| Figure::Absent("not in run.json".into()), Figure::Exact)
    };
    let risen = match (told["oom_kill_before"].as_u64(), told["oom_kill_after"].as_u64()) {
        (before, Some(after)) => Figure::Exact(after - before.unwrap_or(0)),
        _ => Figure::Absent("not in run.json".into()),
    };
    vec![
        Claim::words("cause", "oom_kill", death["cause"].to_string()),
        Claim::exact("who was killed", worker, number(&death["pid"])),
        Claim::words("not the root", "false", death["is_root"].to_string()),
        Claim::words("the stage before", "begun", death["stage"].to_string()),
        Claim::exact("kills in the group", group.kills(), risen),
        Claim::exact("its limit", LIMIT, number(&told["limit_bytes"])),
        Claim::between("the most that it held", LIMIT - 4 * MIB..=LIMIT, number(&told["peak_bytes"])),
        Claim::words("the command's own status", "3", format!("{:?}", run.status)),
    ]
}

fn by_somebody(bench: &Bench) -> Vec<Claim> {
    let run = bench.acts("anon a 8M\n write a 0 8M\n mark begun\n kill 9\n").run();
    let death = run.run.json()["death"].clone();
    let cause = death["cause"].to_string();
    let exit = run.run.json()["exit"].clone();
    vec![
        Claim::words("cause", "\"signal\"", cause),
        Claim::words("root", "true", death["is_root"].to_string()),
        Claim::exact("signal", 9, Figure::Exact(death["signal"].as_u64().unwrap_or(0))),
        Claim::exact("signal at the end", 9, Figure::Exact(exit["signal"].as_u64().unwrap_or(0))),
        Claim::words("the stage before", "begun", death["stage"].to_string()),
        Claim::words("status of the profiler, as a shell has it", "137", format!("{:?}", run.status)),
    ]
}
