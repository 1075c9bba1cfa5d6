//! Conditions of what samples measure over time: what shrank, what stood still.

use std::collections::VecDeque;

use super::condition::{Condition, Growth, Plateau, Share};
use crate::clock::At;
use crate::metric::Metric;
use crate::sample::Sample;

/// What a sample says of the conditions that it can decide.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub t: At,
    /// Resident payload, and the payload.
    pub residency: Option<(u64, u64)>,
    stale_ns: u64,
    mapped: Option<u64>,
    /// Of both kinds.
    faults: Option<u64>,
    reads: Option<u64>,
    /// The launch's share, and what is in use.
    device: [Option<u64>; 2],
    device_stale_ns: u64,
    payload: Option<u64>,
    anon: Option<u64>,
    /// Nothing of the launch was left: what it holds or does no longer says anything.
    over: bool,
}

impl Look {
    pub fn of(sample: &Sample) -> Look {
        let value = |metric| sample.values.get(metric);
        let faults = value(Metric::MinorFaults).zip(value(Metric::MajorFaults));
        Look {
            t: sample.t,
            residency: value(Metric::ResidentPayloadBytes).zip(value(Metric::PayloadBytes)),
            stale_ns: value(Metric::ResidentStaleNs).unwrap_or(0),
            mapped: value(Metric::MappedBytes),
            faults: faults.map(|(minor, major)| minor + major),
            reads: value(Metric::ReadBytes),
            device: [Metric::DeviceLaunchBytes, Metric::DeviceUsedBytes].map(value),
            device_stale_ns: value(Metric::DeviceStaleNs).unwrap_or(0),
            payload: value(Metric::PayloadBytes),
            anon: value(Metric::RssAnonBytes),
            over: super::is_over(sample),
        }
    }

    /// When its oldest part was seen.
    pub fn oldest(&self) -> At {
        At(self.t.0.saturating_sub_unsigned(self.stale_ns))
    }
}

/// A moment that lies in `[low, at]`; `low` is `None` where it has no lower bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub at: At,
    pub low: Option<At>,
}

impl Moment {
    pub fn new(at: At, uncertainty_ns: Option<u64>) -> Moment {
        Moment { at, low: uncertainty_ns.map(|ns| At(at.0.saturating_sub_unsigned(ns))) }
    }

    pub fn uncertainty_ns(&self) -> Option<u64> {
        self.low.map(|low| self.at.0.saturating_sub(low.0).max(0).unsigned_abs())
    }

    /// The later of two. It is not before either, so the higher of the lower bounds holds for it.
    pub fn later(self, other: Moment) -> Moment {
        Moment { at: self.at.max(other.at), low: self.low.max(other.low) }
    }
}

/// How far the mapped extent has shrunk.
#[derive(Default)]
pub(super) struct Unmapping {
    largest: u64,
    /// The extent as it was last, when it came to be so, and the look before the one that first saw it so.
    now: Option<(u64, Moment, At)>,
    /// When, since the last look, what is mapped was told to have changed: all such changes lie in here.
    told: Option<Moment>,
}

impl Unmapping {
    /// A process was seen to map more or less of an artifact than before.
    pub fn tell(&mut self, moment: Moment) {
        self.told = Some(match self.told {
            None => moment,
            Some(other) => Moment {
                at: moment.at.max(other.at),
                low: moment.low.zip(other.low).map(|(low, other)| low.min(other)),
            },
        });
    }

    /// When, and in words, if by this share of the largest that it was; `looked`: the look before this one. Not each look
    /// reads what is mapped. Where a reading told of a change, the time is that change's; else it reaches back to when the
    /// extent was last seen to change. What the end of the processes takes is not meant.
    pub fn look(&mut self, look: &Look, share: Share, looked: Option<At>) -> Option<(Moment, String)> {
        let mapped = look.mapped.filter(|_| !look.over)?;
        let looked = looked.unwrap_or(At(0));
        let told = self.told.take();
        let moment = match self.now {
            Some((before, moment, _)) if before == mapped => moment,
            before => {
                let low = before.map_or(looked, |(_, _, looked)| looked);
                let moment = Moment {
                    at: told.map_or(look.t, |told| told.at.min(look.t)),
                    low: Some(told.and_then(|told| told.low).map_or(low, |told| told.max(low))),
                };
                self.now = Some((mapped, moment, looked));
                moment
            }
        };
        self.largest = self.largest.max(mapped);
        let gone = self.largest - mapped;
        let shrunk = share.is_reached(gone, self.largest);
        shrunk.then(|| (moment, format!("{mapped} of {} mapped bytes left", self.largest)))
    }
}

/// The place of the launch's share among a look's figures of devices.
const SHARE: usize = 0;

/// A driver's answers may be so far apart, and still tell that memory stood still.
const PACE_NS: u64 = 1_000_000_000;
/// So many of them alike are needed where they are further apart than the condition's own half.
const ALIKE: u32 = 3;

/// Since when figures have stood still.
#[derive(Default)]
pub(super) struct Still {
    /// The figures as they stand, and since when.
    now: Option<([u64; 2], Moment)>,
    /// How many looks saw them so.
    alike: u32,
    /// Whether looks without them were between, for half of the condition's time or longer.
    is_sparse: bool,
    /// Device memory before the launch took any: of its share none, of what is in use what the first look saw.
    first: Option<u64>,
    /// Which of its figures is followed: the share once it was known, since the other one differs.
    which: Option<usize>,
    /// When it was last known.
    seen: Option<At>,
}

impl Still {
    /// When the figures of a condition came to stand still and what they are in words, if they have done so for long
    /// enough, counted from `since` on where that is later; `looked`: the look before this one. A figure that is absent,
    /// or of a launch that is over, begins it anew; but a device's may be absent where a slow driver has not answered: for
    /// half of the time, and for up to [`PACE_NS`] where [`ALIKE`] answers in a row are the same.
    pub fn look(
        &mut self,
        condition: &Condition,
        look: &Look,
        looked: Option<At>,
        since: Option<At>,
    ) -> Option<(Moment, String)> {
        let (figures, time_ns) = match condition {
            Condition::Quiet(quiet) => {
                let figure = |wanted, value: Option<u64>| if wanted { value } else { Some(0) };
                (figure(quiet.faults, look.faults).zip(figure(quiet.reads, look.reads)), quiet.time_ns)
            }
            Condition::Device(plateau) => {
                // The share is what is meant, and may be known later: not each answer has the dear list of processes.
                if self.which != Some(SHARE)
                    && let Some(which) = look.device.iter().position(Option::is_some)
                    && self.which != Some(which)
                    && (self.which.is_none() || which == SHARE)
                {
                    *self = Still { which: Some(which), ..Still::default() };
                }
                let figure = self.which.and_then(|which| look.device[which]);
                let apart = self.seen.map(|seen| look.t.0.saturating_sub(seen.0).unsigned_abs());
                if let (None, false, Some(apart)) = (figure, look.over, apart)
                    && apart < PACE_NS.max(plateau.still_ns / 2)
                {
                    self.is_sparse |= apart >= plateau.still_ns / 2;
                    return None;
                }
                (figure.zip(Some(0)), plateau.still_ns)
            }
            _ => return None,
        };
        let Some(figures) = figures.filter(|_| !look.over).map(|(one, other)| [one, other]) else {
            self.now = None;
            return None;
        };
        // What the figures are of began with the launch.
        let low = match condition {
            Condition::Device(_) => {
                let seen = self.seen.replace(look.t).or(looked).unwrap_or(At(0));
                At(seen.0.saturating_sub_unsigned(look.device_stale_ns))
            }
            _ => looked.unwrap_or(At(0)),
        };
        let moment = Moment { at: look.t, low: Some(low) };
        match self.now {
            Some((before, _)) if before == figures => self.alike += 1,
            _ => (self.now, self.alike, self.is_sparse) = (Some((figures, moment)), 1, false),
        }
        if self.is_sparse && self.alike < ALIKE {
            return None;
        }
        // A launch may have taken all of it before anybody looked.
        let is_share = matches!(condition, Condition::Device(_)) && self.which == Some(SHARE);
        let first = *self.first.get_or_insert(if is_share { 0 } else { figures[0] });
        let (_, began) = self.now?;
        let stood = look.t.0.saturating_sub(began.at.max(since?).0);
        if u64::try_from(stood).is_ok_and(|stood| stood < time_ns) || stood < 0 {
            return None;
        }
        let detail = match condition {
            Condition::Device(Plateau { rise_bytes, .. }) if figures[0].saturating_sub(first) < *rise_bytes => {
                return None;
            }
            Condition::Device(_) => {
                format!(
                    "{} bytes on devices, {} more than at the start; no proof that queued copies had ended",
                    figures[0],
                    figures[0] - first
                )
            }
            Condition::Quiet(quiet) => format!("no {} from then to {:.3} s", quiet.of(), look.t.seconds()),
            _ => return None,
        };
        Some((began, detail))
    }
}

/// Anonymous memory before an artifact was opened: what a program holds by then is not of the model.
#[derive(Default)]
pub(super) struct Before {
    recent: VecDeque<(At, u64)>,
    base: Option<u64>,
}

/// Looks remembered for an opening that is told of late; at the usual tick these are 10 s.
const RECENT: usize = 512;

impl Before {
    pub fn look(&mut self, look: &Look) {
        if let (None, Some(anon)) = (self.base, look.anon) {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back((look.t, anon));
        }
    }

    /// An artifact was opened at this moment: only looks before it can count.
    pub fn opened(&mut self, moment: Moment) {
        if self.base.is_none() {
            let before = |(t, _): &&(At, u64)| moment.low.is_some_and(|low| *t <= low);
            // Without one: the first that there is, or a launch that had nothing yet.
            let base = self.recent.iter().rfind(before).or(self.recent.front());
            self.base = Some(base.map_or(0, |(_, anon)| *anon));
            self.recent = VecDeque::new();
        }
    }
}

/// How far anonymous memory has grown.
#[derive(Default)]
pub(super) struct Growing {
    /// Where it stands, and since when.
    now: Option<(u64, Moment)>,
}

/// Anonymous memory stands still where it moves by less: a running program always takes and gives some.
const STIR: u64 = 4 << 20;

impl Growing {
    /// When it came to stand still and what it is in words, if it has done so for long enough, counted from `since` on
    /// where that is later; `looked`: the look before this one.
    pub fn look(
        &mut self,
        growth: Growth,
        look: &Look,
        before: &Before,
        looked: Option<At>,
        since: Option<At>,
    ) -> Option<(Moment, String)> {
        let figures = before.base.zip(look.anon).zip(look.payload).filter(|_| !look.over);
        let Some(((base, anon), payload)) = figures else {
            self.now = None;
            return None;
        };
        match self.now {
            Some((stands, _)) if stands.abs_diff(anon) < STIR => {}
            _ => self.now = Some((anon, Moment { at: look.t, low: Some(looked.unwrap_or(At(0))) })),
        }
        let (_, began) = self.now?;
        let stood = u64::try_from(look.t.0.saturating_sub(began.at.max(since?).0)).ok()?;
        let grown = anon.saturating_sub(base);
        let is_met = stood >= growth.still_ns && growth.rise.is_reached(grown, payload);
        is_met.then(|| (began, format!("{grown} bytes more of anonymous memory, of {payload} payload bytes")))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_counts_from_the_opening_and_when_it_stands() {
        const MIB: u64 = 1 << 20;
        let growth = Growth { rise: "90%".parse().unwrap(), still_ns: 200 };
        let look = |t, anon: u64| {
            let mut values = crate::metric::Values::ABSENT;
            values.set(Metric::PayloadBytes, 100 * MIB);
            values.set(Metric::RssAnonBytes, anon * MIB);
            Look::of(&Sample { t: At(t), late_ns: 0, cost_ns: 0, values })
        };
        let (mut before, mut growing) = (Before::default(), Growing::default());
        let mut feed = |before: &mut Before, t, anon| {
            let look = look(t, anon);
            before.look(&look);
            growing.look(growth, &look, before, Some(At(t - 100)), Some(At(i64::MIN))).map(|(moment, _)| moment.at.0)
        };
        // Libraries that take more than the payload, before it is opened.
        for (t, anon) in [(100, 0), (200, 150), (300, 150), (400, 150), (500, 150)] {
            assert_eq!(feed(&mut before, t, anon), None);
        }
        // Told of late: what was read before that is of the model.
        assert_eq!(feed(&mut before, 600, 180), None);
        before.opened(Moment { at: At(610), low: Some(At(550)) });
        assert_eq!(feed(&mut before, 700, 243), None);
        assert_eq!(feed(&mut before, 800, 241), None, "stands, not for long enough");
        assert_eq!(feed(&mut before, 900, 242), Some(700));
        let mut late = Before::default();
        late.opened(Moment { at: At(10), low: None });
        assert_eq!(late.base, Some(0));
    }
}
