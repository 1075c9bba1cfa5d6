//! Workers with ranks in their environment: each rank's rows against its own worker's account.

use crate::bench::{Bench, MIB, word};
use crate::claim::{Claim, Figure};
use crate::harness::Case;
use crate::profile::{OWN_MEMORY, Profile, START_READS, rss_error};
use crate::support::reference_loader;

pub const CASES: &[Case] = &[Case::new("rows_of_two_ranks", two_ranks)];

/// A rank's figure in `detail.csv` at a stage.
fn figure(run: &Profile, stage: &str, rank: u64, metric: &str) -> Figure {
    let at = run.stage(stage).text("sampled_ns").to_owned();
    let rows = run.run.rows("detail.csv");
    let row = rows.iter().find(|row| {
        row["t_ns"] == at && row["scope"] == "rank" && row["id"] == rank.to_string() && row["metric"] == metric
    });
    row.map_or_else(|| Figure::Absent("no row".into()), |row| Figure::Exact(row["value"].parse().unwrap()))
}

fn two_ranks(bench: &Bench) -> Vec<Claim> {
    let [program, verb] = reference_loader();
    let [file, ready, done] = ["data", "ready", "done"].map(|name| bench.path(name));
    std::fs::write(&file, vec![1; 12 << 20]).unwrap();
    let read = |mib: u64| format!("open d {}\n read d 0 {mib}M\n", word(&file));
    let (ready, done) = (word(ready), word(done));
    let first = format!(
        "anon a 32M\n write a 0 32M\n {} step held\n open r {ready} create\n until {done}\n step over\n",
        read(4)
    );
    let second = format!(
        "anon a 64M\n write a 0 64M\n {} burn 100\n until {ready}\n step held\n mark held\n \
         open d {done} create\n step over\n",
        read(12)
    );
    let scripts = [bench.script("first", &first), bench.script("second", &second)];
    let shell = "export WORLD_SIZE=2
RANK=0 LOCAL_RANK=0 \"$3\" \"$4\" acts \"$1\" \"$5\" &
RANK=1 LOCAL_RANK=1 \"$3\" \"$4\" acts \"$2\" \"$5\" &
wait";
    let mut launch = bench.command(["sh", "-c", shell, "sh"]);
    let truth = launch.truth_path();
    launch.arguments(scripts).arguments([program, verb]).arguments([truth]);
    let run = launch.run();
    let mut claims = vec![Claim::absent("a rank that is not there", "no row", figure(&run, "held", 2, "rss_bytes"))];
    // The first says so before the second may.
    let held = run.truth.iter().filter(|line| line.name == "held" && line.kind == "step");
    let workers: Vec<u64> = held.map(|line| line.pid).collect();
    for (rank, pid) in (0..).zip(workers) {
        let of = |metric| figure(&run, "held", rank, metric);
        let own = || run.truth.iter().filter(|line| line.pid == pid && line.kind != "total");
        let held = own().find(|line| line.name == "held").unwrap();
        // Its next word after the look, or its last one.
        let sampled = run.sample("held").t();
        let after = own().find(|line| line.t >= sampled).unwrap();
        let heap = [32, 64][rank as usize] * MIB;
        let claim = |metric: &'static str, truth: std::ops::RangeInclusive<u64>| {
            Claim::between(format!("{metric} of rank {rank}"), truth, of(metric))
        };
        claims.push(claim("rss_anon_bytes", heap - rss_error()..=heap + OWN_MEMORY + rss_error()));
        claims.push(claim("rchar_bytes", held.reads().0..=after.reads().0 + START_READS));
        let faults = match (of("minor_faults"), of("major_faults")) {
            (Figure::Exact(minor), Figure::Exact(major)) => Figure::Exact(minor + major),
            (absent, _) => absent,
        };
        claims.push(Claim::between(format!("faults of rank {rank}"), held.faults()..=after.faults(), faults));
        let cpu = |line: &crate::profile::Said| 1_000 * (line.get("user_us") + line.get("system_us"));
        // User and system time are each cut to a clock tick.
        claims.push(claim("cpu_ns", cpu(held).saturating_sub(20_000_000)..=cpu(after)));
        claims.push(claim("processes", 1..=1));
        claims.push(claim("threads", 1..=1));
        claims.push(claim("local_rank", rank..=rank));
        claims.push(claim("world_size", 2..=2));
    }
    claims
}
