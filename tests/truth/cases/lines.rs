//! Stages by what a loader prints, and the time of every line.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use stagemark_fixtures::models::Fill;

use crate::bench::{Bench, MIB};
use crate::claim::Claim;
use crate::harness::Case;
use crate::support::{eventually, read_all};

pub const CASES: &[Case] = &[
    Case::new("server_marked_by_its_lines", server),
    Case::new("port_held_and_never_answered", port_held),
    Case::new("lines_within_their_uncertainty", |bench| lines(bench, 200, false)),
    // 2,000 lines are more than the reader's pipe holds: the rest is held up before anybody has seen it.
    Case::new("lines_held_up_by_their_reader", |bench| lines(bench, 2_000, true)),
];

fn server(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(16 * MIB, Fill::Sparse);
    let arguments = "mmap-lazy --serve 0 --listen-early --pace 64MiB --touch 16MiB --hold until-stdin-closes";
    let mut talk = bench.loader(&model, arguments).start(Stdio::piped());
    let mut lines = BufReader::new(talk.child.stdout.take().unwrap()).lines();
    let mut until = |start: &str| {
        let found = lines.by_ref().map(Result::unwrap).find_map(|line| line.strip_prefix(start).map(str::to_owned));
        found.unwrap_or_else(|| panic!("no line {start:?}"))
    };
    let address = until("listening on http://");
    let early = ask(&address);
    until("stage module_populated");
    // The line comes just before the door is opened.
    eventually("an answer", || ask(&address).starts_with("HTTP/1.1 200").then_some(()));
    until("stage first_response");
    drop(talk.child.stdin.take());
    lines.for_each(drop);
    let run = talk.finish();
    let mut claims = run.counters(&[]);
    claims.push(Claim::words(
        "an answer before it is populated",
        "HTTP/1.1 503",
        early.lines().next().unwrap_or_default(),
    ));
    claims.push(Claim::words("evidence of first_response", "log", run.stage("first_response").text("evidence")));
    // Main and accept; the one that waits for the end of standard input begins just after the mark.
    claims.push(run.within("first_response", "threads", 2..=3));
    claims
}

fn ask(address: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn port_held(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(8 * MIB, Fill::Sparse);
    let run = bench.loader(&model, "read-heap --serve 0 --bind-without-listen --hold 0.1 --exit-status 7").run();
    let mut claims = vec![Claim::words("detail of exited", "exit 7", run.stage("exited").text("detail"))];
    for stage in ["module_populated", "first_response"] {
        claims.push(Claim::words(format!("evidence of {stage}"), "log", run.stage(stage).text("evidence")));
    }
    claims
}

/// Every line of the log was written within its uncertainty, also where the reader of the output lets it wait.
fn lines(bench: &Bench, count: usize, stalled: bool) -> Vec<Claim> {
    let model = bench.model(MIB, Fill::Sparse);
    let launch = bench.loader(&model, &format!("mmap-lazy --chatter {count} --exit-status 3"));
    let mut talk = launch.start(Stdio::null());
    if stalled {
        let truth = talk.truth_path();
        eventually("the loader's last word", || {
            let text = std::fs::read_to_string(&truth).ok()?;
            text.contains(r#""truth":"total""#).then_some(())
        });
    }
    read_all(OwnedFd::from(talk.child.stdout.take().unwrap()));
    let run = talk.finish();
    let start = run.run.json()["start_monotonic_ns"].as_u64().unwrap() as i64;
    let text = String::from_utf8(run.run.bytes("output.log")).unwrap();
    let told: Vec<(i64, Option<i64>, i64)> = text.lines().filter_map(|line| told(line, start)).collect();
    assert!(told.len() >= count);
    let before = told.iter().filter(|(t, _, written)| t < written).count();
    // It was written by the time at which the next one was begun.
    let after =
        |pair: &&[(i64, Option<i64>, i64)]| pair[0].1.is_some_and(|uncertainty| pair[0].0 - uncertainty > pair[1].2);
    let after = told.windows(2).filter(after).count();
    let known = told.iter().filter(|(_, uncertainty, _)| uncertainty.is_some()).count();
    vec![
        Claim::holds("no line was read before it was written", before == 0, format!("{before} of {}", told.len())),
        Claim::holds("t − u is never after the next line", after == 0, format!("{after} of {known} with a bound")),
    ]
}

/// Of a line of `output.log`: its time, its uncertainty, and the time that the loader put into it.
fn told(line: &str, start: i64) -> Option<(i64, Option<i64>, i64)> {
    let mut fields = line.splitn(5, '\t');
    let (t, uncertainty) = (fields.next()?.parse().unwrap(), fields.next()?.parse().ok());
    let (_, written) = fields.nth(2)?.rsplit_once(" t=")?;
    Some((t, uncertainty, written.replace('.', "").parse::<i64>().unwrap() - start))
}
