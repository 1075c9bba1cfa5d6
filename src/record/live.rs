//! The live line: what a quiet launch has come to, four times a second, on the terminal. Where and when it may be drawn
//! is `launch`'s business ([`crate::launch::LiveLine`]).
//!
//! The recorder leaves its latest figures where a thread of this room finds them, and never waits for it: a terminal
//! may stand still for as long as it likes.

use std::io::PipeWriter;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::clock::{Clock, Mono};
use crate::launch::{LiveLine, Waited};
use crate::metric::{Metric, Values};
use crate::report::text::{columns, elide, plain};
use crate::units;

/// So often it is drawn.
const EVERY: Duration = Duration::from_millis(250);
/// Who prints at once, or is over at once, never sees it.
const FIRST: Duration = Duration::from_secs(1);
/// How long the end waits for a line that is being drawn.
const LAST: Duration = Duration::from_millis(300);

/// What is shown, and what of it stands where.
const SHOWN: [(Metric, &str); 5] = [
    (Metric::MappedPayloadBytes, "mapped"),
    (Metric::ResidentPayloadBytes, "resident"),
    (Metric::RssBytes, "RSS"),
    (Metric::DeviceLaunchBytes, "device"),
    (Metric::ReadBytes, "read"),
];

/// The latest figures.
#[derive(Clone, Debug, Default)]
struct Latest {
    stage: Option<String>,
    figures: [Option<u64>; SHOWN.len()],
}

/// Where the recorder leaves them.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Latest>>);

impl Board {
    /// Leaves a sample's figures there, unless the line is just being made: then the next sample's will do.
    pub fn sample(&self, values: &Values) {
        if let Ok(mut latest) = self.0.try_lock() {
            latest.figures = SHOWN.map(|(metric, _)| values.get(metric));
        }
    }

    /// Leaves a stage that was reached there.
    pub fn stage(&self, stage: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).stage = Some(stage.to_owned());
    }

    fn latest(&self) -> Latest {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The thread that draws it.
pub struct Live {
    board: Board,
    end: PipeWriter,
    thread: JoinHandle<()>,
}

impl Live {
    /// Begins to draw, where a thread can be had; a launch goes on without.
    pub fn begin(line: LiveLine, clock: Clock) -> Option<Live> {
        let (ended, end) = std::io::pipe().ok()?;
        let board = Board::default();
        let read = board.clone();
        let draw = move || {
            let mut wait = FIRST;
            while line.wait(wait, ended.as_fd()) == Waited::Due {
                if line.is_closed() {
                    return;
                }
                if let Some(room) = line.room() {
                    let elapsed = u64::try_from(clock.at(Mono::now()).0).unwrap_or(0);
                    line.draw(&text(&read.latest(), elapsed, room));
                }
                wait = EVERY;
            }
            line.close();
        };
        let thread = std::thread::Builder::new().name("live".into()).spawn(draw).ok()?;
        Some(Live { board, end, thread })
    }

    pub fn board(&self) -> Board {
        self.board.clone()
    }

    /// Wipes the line. A terminal that takes nothing is not waited for: what is said next waits for it as well.
    pub fn finish(self) {
        drop(self.end);
        let until = Instant::now() + LAST;
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The line in so many columns: what has no room is left out, from the end. What is not known is left out as well.
fn text(latest: &Latest, elapsed_ns: u64, room: usize) -> String {
    let seconds = elapsed_ns / 1_000_000_000;
    let mut line = elide(&format!("stagemark {seconds} s"), room);
    let stage = latest.stage.as_ref().map_or_else(|| "no stage yet".to_owned(), |stage| elide(&plain(stage), 30));
    let figures = SHOWN.iter().zip(latest.figures);
    let figures = figures.filter_map(|((_, word), value)| Some(format!("{word} {}", units::bytes(value?))));
    for part in std::iter::once(stage).chain(figures) {
        if columns(&line) + columns(&part) + 3 > room {
            break;
        }
        line.push_str(&format!(" · {part}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_to_its_room_and_shows_no_figure_that_is_not_known() {
        let figures = [Some(256 << 20), Some(90_112), Some(300 << 20), None, Some(118 << 10)];
        let latest = Latest { stage: Some("mapping_available".into()), figures };
        let whole =
            "stagemark 12 s · mapping_available · mapped 256 MiB · resident 88 KiB · RSS 300 MiB · read 118 KiB";
        assert_eq!(text(&latest, 12_900_000_000, 200), whole);
        assert_eq!(text(&latest, 12_900_000_000, 40), "stagemark 12 s · mapping_available");
        let latest = Latest { stage: Some("模型\u{1b}[2J".repeat(30)), figures: [Some(u64::MAX); 5] };
        for room in 20..200 {
            let line = text(&latest, u64::MAX, room);
            assert!(columns(&line) <= room && !line.contains(char::is_control), "{room}: {line}");
        }
        assert_eq!(text(&Latest::default(), 0, 79), "stagemark 0 s · no stage yet");
    }
}
