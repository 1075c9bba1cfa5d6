//! The first response against the steady state, in words: what the first one took and touched that those after it did
//! not. Only where the request was repeated (`--repeat-response`).

use crate::clock::At;
use crate::metric::Metric;
use crate::run::Run;
use crate::run::responses::{FIRST, Response};
use crate::sample::Sample;

use super::text::plain;
use super::units;

/// The sentences. A run that was not asked for repeats has none.
pub fn sentences(run: &Run) -> Vec<String> {
    let Some(first) = run.responses.iter().find(|response| response.request == FIRST) else { return Vec::new() };
    let repeats: Vec<&Response> = run
        .responses
        .iter()
        .filter(|response| response.stage == first.stage && response.request.starts_with("repeat "))
        .collect();
    let mut latencies: Vec<u64> = repeats.iter().filter(|one| one.is_accepted).map(|one| one.latency_ns).collect();
    latencies.sort_unstable();
    let stage = plain(&first.stage);
    let took = format!("The request of {stage} took {} the first time", units::duration(first.latency_ns));
    let refused = match repeats.len() - latencies.len() {
        0 => String::new(),
        count => format!(" {count} of {} repeats were not accepted, and are not in these figures.", repeats.len()),
    };
    let (Some(least), Some(most)) = (latencies.first(), latencies.last()) else {
        let why = if repeats.is_empty() { "; it was not repeated before the end." } else { "." };
        return vec![format!("{took}{why}{refused}")];
    };
    let median = units::duration(median(&latencies));
    let after = match latencies.len() {
        1 => format!("{median} when it was repeated once"),
        count => format!(
            "{median} in the median of {count} repeats ({} to {})",
            units::duration(*least),
            units::duration(*most)
        ),
    };
    let mut said = vec![format!("{took}, and {after}.{refused}")];
    let ends = repeats.iter().map(|one| one.began).min().zip(repeats.iter().map(|one| one.at).max());
    let of_first = touched(&run.samples, first.began, first.at);
    let of_repeats = ends.and_then(|(began, at)| touched(&run.samples, began, at));
    if let (Some(of_first), Some(of_repeats)) = (of_first, of_repeats) {
        said.push(format!("While the first was answered {of_first}; while all repeats were, {of_repeats}."));
    }
    said
}

/// The middle one, or the mean of the two in the middle.
fn median(sorted: &[u64]) -> u64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => sorted[middle - 1].midpoint(sorted[middle]),
    }
}

/// What came between two times, by the samples around them: at most that. `None` where one of them has none.
fn touched(samples: &[Sample], from: At, to: At) -> Option<String> {
    let before = samples.partition_point(|sample| sample.t <= from).checked_sub(1)?;
    let after = samples.partition_point(|sample| sample.t < to);
    let (before, after) = (&samples[before].values, &samples.get(after)?.values);
    let rise = |metric: Metric| Some(after.get(metric)?.saturating_sub(before.get(metric)?));
    let faults =
        rise(Metric::MinorFaults).zip(rise(Metric::MajorFaults)).map(|(minor, major)| minor.saturating_add(major));
    let parts: Vec<String> = [
        rise(Metric::ResidentPayloadBytes).map(|bytes| format!("{} of payload came in", units::bytes(bytes))),
        faults.map(|faults| format!("{} page faults", units::count(faults))),
        rise(Metric::ReadBytes).map(|bytes| format!("{} read from storage", units::bytes(bytes))),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!parts.is_empty()).then(|| format!("at most {}", parts.join(", ")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::metric::Values;

    const MS: i64 = 1_000_000;

    fn response(request: &str, began: i64, latency: i64, is_accepted: bool) -> Response {
        let stage = "first_response".to_owned();
        let (began, at) = (At(began * MS), At((began + latency) * MS));
        Response { stage, request: request.to_owned(), began, at, latency_ns: (latency * MS) as u64, is_accepted }
    }

    fn run() -> Run {
        let mut run = Run::load(std::path::Path::new("fixtures/runs/lazy")).unwrap();
        run.samples = [(90, 0, 100), (320, 64 << 20, 2_100), (500, 64 << 20, 2_110)]
            .into_iter()
            .map(|(t, resident, faults)| {
                let mut values = Values::ABSENT;
                values.set(Metric::ResidentPayloadBytes, resident as u64);
                values.set(Metric::MinorFaults, faults);
                values.set(Metric::MajorFaults, 0);
                Sample { t: At(t * MS), late_ns: 0, cost_ns: 0, values }
            })
            .collect();
        run
    }

    #[test]
    fn the_first_stands_against_the_median_of_the_others() {
        let mut run = run();
        assert_eq!(sentences(&run), [""; 0], "nobody asked");
        run.responses = vec![
            response("first", 100, 200, true),
            response("repeat 1", 330, 30, true),
            response("repeat 2", 360, 10, true),
            response("repeat 3", 370, 5, false),
            response("repeat 4", 380, 20, true),
            Response { stage: "representative_work".to_owned(), ..response("1", 400, 900, true) },
        ];
        assert_eq!(
            sentences(&run),
            [
                "The request of first_response took 200 ms the first time, and 20 ms in the median of 3 repeats (10 ms to \
                 30 ms). 1 of 4 repeats were not accepted, and are not in these figures.",
                "While the first was answered at most 64 MiB of payload came in, 2.00k page faults; while all repeats \
                 were, at most 0 B of payload came in, 10 page faults."
            ]
        );
        run.samples.pop();
        assert_eq!(sentences(&run).len(), 1, "no sample after the repeats");
        run.responses.truncate(1);
        assert!(sentences(&run)[0].ends_with("200 ms the first time; it was not repeated before the end."));
        run.responses.push(response("repeat 1", 330, 30, true));
        assert!(sentences(&run)[0].ends_with(", and 30 ms when it was repeated once."));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median(&[1, 4]), 2);
        assert_eq!(median(&[u64::MAX, u64::MAX]), u64::MAX);
        assert_eq!(median(&[3]), 3);
    }
}
