//! Trust and rotation, tried on kernels, filesystems and file sizes that are not at hand. Time is simulated: a call costs
//! what it was measured to cost, so that budgets can be asserted.
#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::eviction::{Fall, Views};
use super::kernel::PageCache;
use super::pages::Watched;
use super::rotation::Rotation;
use super::trust::{Places, decide};
use crate::artifact::extent::Ranges;
use crate::clock::Mono;
use crate::sys::cache::CacheStat;

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const BUDGET: u64 = 350_000;
const TICK: u64 = 20_000_000;

/// What the simulated kernel holds of a file, and how it answers.
struct State {
    /// Pages in the cache and up to date.
    present: Ranges,
    /// Pages in the cache that are still being read.
    in_flight: Ranges,
    length: u64,
    /// Pages of a page-cache entry.
    folio: u64,
    /// Nanoseconds that cachestat takes an entry.
    entry_ns: u64,
    withheld: bool,
    cachestat_error: Option<i32>,
    /// cachestat sees another page cache than the file's, as on a stacked filesystem.
    blind: bool,
    filesystem: u32,
    unopened: bool,
    dax: bool,
    /// Pages evicted not long ago.
    evicted: Ranges,
    mincores: u64,
    cachestats: u64,
    dearest: u64,
}

#[derive(Clone)]
struct Simulated {
    state: Arc<Mutex<State>>,
    clock: Arc<AtomicU64>,
    answer: Vec<u8>,
}

impl Simulated {
    fn new(length: u64, present: impl IntoIterator<Item = Range<u64>>) -> Simulated {
        let state = State {
            present: present.into_iter().collect(),
            in_flight: Ranges::EMPTY,
            length,
            folio: 1,
            entry_ns: 29,
            withheld: false,
            cachestat_error: None,
            blind: false,
            filesystem: 0xef53,
            unopened: false,
            dax: false,
            evicted: Ranges::EMPTY,
            mincores: 0,
            cachestats: 0,
            dearest: 0,
        };
        Simulated {
            state: Arc::new(Mutex::new(state)),
            clock: Arc::new(AtomicU64::new(1_000_000_000)),
            answer: Vec::new(),
        }
    }

    fn with(self, change: impl FnOnce(&mut State)) -> Simulated {
        self.change(change);
        self
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.lock().unwrap())
    }

    fn now(&self) -> Mono {
        Mono(self.clock.load(Ordering::Relaxed))
    }

    fn pass(&self, ns: u64) {
        self.clock.fetch_add(ns, Ordering::Relaxed);
    }

    fn rotation(&self) -> Rotation {
        let clock = self.clock.clone();
        // Reading the clock takes time, too: a rotation that asked nothing would otherwise never end.
        Rotation::new(move || Mono(clock.fetch_add(25, Ordering::Relaxed)))
    }

    /// A rotation of this file alone, asked about as a whole.
    fn watched(&self, ranges: &Ranges) -> Rotation {
        let mut rotation = self.rotation();
        rotation.add(Box::new(self.clone()), Watched::new(ranges, PAGE), Mono(u64::MAX));
        rotation
    }

    /// The virtual time that a tick takes.
    fn tick(&self, rotation: &mut Rotation) -> u64 {
        self.pass(TICK);
        let since = rotation.now();
        rotation.turn(since, since.plus(BUDGET));
        self.now().since(since)
    }

    fn look(&self, rotation: &mut Rotation) {
        let since = rotation.now();
        rotation.judge_all(Mono(u64::MAX));
        rotation.turn(since, Mono(u64::MAX));
        assert!(rotation.oldest().is_none_or(|oldest| oldest >= since));
    }

    /// A look as at a mark: the calls' differences settled, and falls told.
    fn mark(&self, rotation: &mut Rotation, views: &mut Views) -> Vec<Fall> {
        self.look(rotation);
        let falls = views.after_turn(rotation);
        rotation.settle_in_flight(Mono(u64::MAX));
        rotation.count_evicted(Mono(u64::MAX));
        rotation.check();
        falls
    }

    /// Watched bytes in memory, by the definition.
    fn truth(&self, ranges: &Ranges) -> u64 {
        let present = self.change(|state| state.present.clone());
        present.iter().map(|pages| ranges.within(pages.start * PAGE..pages.end * PAGE).len()).sum()
    }
}

impl PageCache for Simulated {
    fn cachestat(&mut self, pages: Range<u64>) -> io::Result<CacheStat> {
        assert!(pages.start < pages.end);
        let (answer, cost) = self.change(|state| {
            if let Some(error) = state.cachestat_error {
                return (Err(io::Error::from_raw_os_error(error)), 300);
            }
            let count = state.present.union(&state.in_flight).within(pages.clone()).len();
            let recently_evicted = state.evicted.within(pages).len();
            let cost = 500 + count / state.folio * state.entry_ns;
            state.cachestats += 1;
            state.dearest = state.dearest.max(cost);
            let cached = if state.blind { 0 } else { count };
            (Ok(CacheStat { cached, recently_evicted, ..CacheStat::default() }), cost)
        });
        self.pass(cost);
        answer
    }

    fn mincore(&mut self, pages: Range<u64>) -> io::Result<&[u8]> {
        let length = pages.end - pages.start;
        let mut answer = vec![0; length as usize];
        let cost = self.change(|state| {
            for page in state.present.within(pages.clone()).iter().flatten() {
                answer[(page - pages.start) as usize] = 1;
            }
            if state.withheld {
                answer.fill(1);
            }
            let cost = 300 + length * 45;
            state.mincores += 1;
            state.dearest = state.dearest.max(cost);
            cost
        });
        self.pass(cost);
        self.answer = answer;
        Ok(&self.answer)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.change(|state| state.length))
    }

    fn filesystem(&self) -> io::Result<u32> {
        Ok(self.change(|state| state.filesystem))
    }

    fn is_open(&self) -> bool {
        !self.change(|state| state.unopened)
    }

    fn is_dax(&self) -> bool {
        self.change(|state| state.dax)
    }
}

fn whole(bytes: u64) -> Ranges {
    Ranges::from_iter([0..bytes])
}

fn judged(cache: &mut Simulated) -> (String, String) {
    let verdict = decide(cache, &Watched::new(&whole(GIB), PAGE), Places::all(8));
    let trust = verdict.trust();
    (trust.by, trust.because)
}

#[test]
fn trust_follows_what_the_kernel_does() {
    let file = || Simulated::new(GIB / PAGE, [0..GIB / PAGE]);
    assert_eq!(judged(&mut file()).0, "cachestat");

    let (by, because) = judged(&mut file().with(|state| {
        state.withheld = true;
        state.cachestat_error = Some(libc::EPERM);
    }));
    assert_eq!(by, "none");
    assert!(because.contains("owner") && because.contains("EPERM"), "{because}");

    // A kernel whose cachestat has no check of permission yet.
    assert_eq!(judged(&mut file().with(|state| state.withheld = true)).0, "cachestat");

    let (by, because) = judged(&mut file().with(|state| state.cachestat_error = Some(libc::ENOSYS)));
    assert_eq!(by, "mincore");
    assert!(because.contains("6.5"), "{because}");

    // A cold overlay shows no contradiction; its name is enough.
    let overlay = |state: &mut State| {
        state.filesystem = 0x794c_7630;
        state.blind = true;
        state.present = Ranges::EMPTY;
    };
    assert_eq!(judged(&mut file().with(overlay)).0, "mincore");
    assert_eq!(judged(&mut file().with(overlay).with(|state| state.withheld = true)).0, "none");

    let (by, because) = judged(&mut file().with(|state| state.filesystem = 0x9584_58f6));
    assert_eq!(by, "none");
    assert!(because.contains("hugetlbfs"), "{because}");

    let (by, because) = judged(&mut file().with(|state| state.dax = true));
    assert_eq!(by, "none");
    assert!(because.contains("DAX"), "{because}");

    // One that must not be opened is not asked about at all.
    let mut unopened = file().with(|state| state.unopened = true);
    let (by, because) = judged(&mut unopened);
    assert_eq!(by, "none");
    assert!(because.contains("FUSE"), "{because}");
    assert_eq!(unopened.change(|state| state.mincores + state.cachestats), 0);

    // A stacked filesystem that is not known by name.
    let (by, because) = judged(&mut file().with(|state| state.blind = true));
    assert_eq!(by, "mincore");
    assert!(because.contains("cachestat saw 0"), "{because}");
}

#[test]
fn read_ahead_in_flight_is_no_contradiction() {
    let mut file = Simulated::new(GIB / PAGE, [0..100]).with(|state| state.in_flight = Ranges::from_iter([100..5000]));
    assert_eq!(judged(&mut file).0, "cachestat");
}

#[test]
fn a_stacked_filesystem_is_found_out_once_something_is_read_and_not_believed_again() {
    let ranges = whole(GIB);
    let file = Simulated::new(GIB / PAGE, []).with(|state| state.blind = true);
    let mut rotation = file.watched(&ranges);
    assert_eq!(rotation.verdict(0).trust().by, "cachestat");
    file.change(|state| state.present = Ranges::from_iter([0..GIB / PAGE / 2]));
    file.look(&mut rotation);
    assert_eq!(rotation.verdict(0).trust().by, "mincore");
    assert_eq!(rotation.resident(0), Ok(GIB / 2));
    file.change(|state| state.present = Ranges::EMPTY);
    file.look(&mut rotation);
    assert_eq!(rotation.verdict(0).trust().by, "mincore");
    assert_eq!(rotation.resident(0), Ok(0));
}

#[test]
fn the_same_is_found_out_between_looks() {
    let file = Simulated::new(GIB / PAGE, [0..GIB / PAGE]).with(|state| state.blind = true);
    file.change(|state| state.present = Ranges::EMPTY);
    let mut rotation = file.watched(&whole(GIB));
    assert_eq!(rotation.resident(0), Ok(0));
    file.change(|state| state.present = Ranges::from_iter([0..GIB / PAGE]));
    file.pass(2_000_000_000);
    rotation.judge_one();
    assert!(rotation.resident(0).is_err(), "what was learnt from a call not believed any more must not be told");
    for _ in 0..2_000 {
        file.tick(&mut rotation);
    }
    assert_eq!(rotation.resident(0), Ok(GIB));
}

#[test]
fn permission_that_is_lost_and_given_back() {
    let file = Simulated::new(GIB / PAGE, [0..1000]);
    let mut rotation = file.watched(&whole(GIB));
    file.change(|state| {
        state.withheld = true;
        state.cachestat_error = Some(libc::EPERM);
    });
    file.tick(&mut rotation);
    assert!(rotation.resident(0).unwrap_err().contains("withholds"));
    assert_eq!(rotation.oldest(), None);
    file.tick(&mut rotation);
    file.change(|state| {
        state.withheld = false;
        state.cachestat_error = None;
    });
    file.look(&mut rotation);
    assert_eq!(rotation.resident(0), Ok(1000 * PAGE));
}

#[test]
fn an_empty_tebibyte_is_seen_whole_in_each_tick() {
    let file = Simulated::new(TIB / PAGE, []);
    let mut rotation = file.watched(&whole(TIB));
    assert_eq!(rotation.resident(0), Ok(0));
    for _ in 0..20 {
        file.tick(&mut rotation);
    }
    file.change(|state| state.cachestats = 0);
    let cost = file.tick(&mut rotation);
    assert!(cost < BUDGET, "{cost}");
    assert!(file.now().since(rotation.oldest().unwrap()) <= cost);
    assert!(file.change(|state| state.cachestats) < 200);
    assert!(rotation.chunks() < 200);
}

#[test]
fn large_folios_are_seen_whole_in_each_tick() {
    let pages = 4 * GIB / PAGE;
    let file = Simulated::new(pages, [0..pages]).with(|state| (state.folio, state.entry_ns) = (512, 50));
    let mut rotation = file.watched(&whole(4 * GIB));
    for _ in 0..20 {
        file.tick(&mut rotation);
    }
    let cost = file.tick(&mut rotation);
    assert!(cost <= BUDGET, "{cost}");
    assert!(file.now().since(rotation.oldest().unwrap()) <= cost);
}

#[test]
fn small_folios_stay_in_the_budget_and_come_round() {
    let pages = 4 * GIB / PAGE;
    let file = Simulated::new(pages, [0..pages]);
    let mut rotation = file.watched(&whole(4 * GIB));
    let start = file.now();
    let mut ticks = 0;
    while rotation.oldest().unwrap() < start {
        let cost = file.tick(&mut rotation);
        assert!(cost <= BUDGET + 20_000, "{cost}");
        ticks += 1;
        assert!(ticks < 150);
    }
    assert_eq!(rotation.resident(0), Ok(4 * GIB));
}

#[test]
fn a_file_that_fills_up_does_not_overrun_ticks() {
    // 2 GiB/s in the smallest folios into a file that was empty, and asked about in large parts, before.
    let file = Simulated::new(TIB / PAGE, []);
    let mut rotation = file.watched(&whole(TIB));
    for _ in 0..10 {
        file.tick(&mut rotation);
    }
    file.change(|state| state.dearest = 0);
    for tick in 1..=200 {
        file.change(|state| state.present = Ranges::from_iter([GIB / PAGE..GIB / PAGE + tick * 10_000]));
        let cost = file.tick(&mut rotation);
        assert!(cost < 2 * BUDGET, "tick {tick}: {cost}");
    }
    file.look(&mut rotation);
    assert_eq!(rotation.resident(0), Ok(200 * 10_000 * PAGE));
}

#[test]
fn a_load_shows_in_the_tick_in_which_it_happens() {
    // 400 MiB/s in the smallest folios: asking about all that is in memory already would take hundreds of ticks.
    const A_TICK: u64 = 2_000;
    let file = Simulated::new(8 * GIB / PAGE, [0..1_000_000]);
    let mut rotation = file.watched(&whole(8 * GIB));
    for tick in 1..=200 {
        file.change(|state| state.present = Ranges::from_iter([0..1_000_000 + tick * A_TICK]));
        file.tick(&mut rotation);
        let (seen, truth) = (rotation.resident(0).unwrap(), (1_000_000 + tick * A_TICK) * PAGE);
        assert!(seen <= truth && truth - seen <= 8 * A_TICK * PAGE, "tick {tick}: {seen} of {truth}");
    }
    // What goes is seen later, but it is seen.
    file.change(|state| state.present = Ranges::from_iter([1_000_000..1_500_000]));
    let mut ticks = 0;
    while rotation.resident(0) != Ok(500_000 * PAGE) {
        file.tick(&mut rotation);
        ticks += 1;
        assert!(ticks < 1_000, "{:?}", rotation.resident(0));
    }
    rotation.check();
}

#[test]
fn the_cheaper_call_is_asked() {
    // Where entries are dearer than mincore's pages, mincore answers; once they are gone, cachestat does again.
    let pages = GIB / PAGE;
    let file = Simulated::new(pages, [0..pages]).with(|state| state.entry_ns = 120);
    let mut rotation = file.watched(&whole(GIB));
    for _ in 0..2_000 {
        file.tick(&mut rotation);
    }
    let calls = |state: &mut State| (std::mem::take(&mut state.mincores), std::mem::take(&mut state.cachestats));
    file.change(calls);
    for _ in 0..200 {
        file.tick(&mut rotation);
    }
    let (mincores, cachestats) = file.change(calls);
    assert!(mincores > 3 * cachestats, "{mincores} mincore, {cachestats} cachestat");
    file.change(|state| state.entry_ns = 1);
    for _ in 0..8_000 {
        file.tick(&mut rotation);
    }
    file.change(calls);
    for _ in 0..200 {
        file.tick(&mut rotation);
    }
    let (mincores, cachestats) = file.change(calls);
    assert!(cachestats > mincores, "{mincores} mincore, {cachestats} cachestat");
}

#[test]
fn mincore_alone_rotates_too() {
    let pages = 4 * GIB / PAGE;
    let file = Simulated::new(pages, [0..pages / 2]).with(|state| state.cachestat_error = Some(libc::ENOSYS));
    let mut rotation = file.watched(&whole(4 * GIB));
    assert_eq!(rotation.resident(0), Ok(2 * GIB));
    let start = file.now();
    let mut ticks = 0;
    while rotation.oldest().unwrap() < start {
        let cost = file.tick(&mut rotation);
        assert!(cost <= BUDGET + 20_000, "{cost}");
        ticks += 1;
        assert!(ticks < 250);
    }
}

#[test]
fn what_was_not_asked_in_time_is_absent_until_the_rotation_has_been_there() {
    let pages = GIB / PAGE;
    let file = Simulated::new(pages, [0..pages]);
    let mut rotation = file.rotation();
    let deadline = file.now().plus(1_000_000);
    rotation.add(Box::new(file.clone()), Watched::new(&whole(GIB), PAGE), deadline);
    assert_eq!(rotation.resident(0), Err("not all asked yet"));
    assert_eq!(rotation.oldest(), None);
    for _ in 0..60 {
        file.tick(&mut rotation);
    }
    assert_eq!(rotation.resident(0), Ok(GIB));
    assert!(rotation.oldest().is_some());
}

#[test]
fn files_take_turns() {
    let files: Vec<_> = (0..3).map(|nth| Simulated::new(GIB / PAGE, [0..(nth + 1) * 1000])).collect();
    let mut rotation = files[0].rotation();
    for file in &files {
        let cache = Simulated { clock: files[0].clock.clone(), ..file.clone() };
        rotation.add(Box::new(cache), Watched::new(&whole(GIB), PAGE), Mono(u64::MAX));
    }
    let start = files[0].now();
    for _ in 0..20 {
        files[0].tick(&mut rotation);
    }
    assert!(rotation.oldest_of_each().iter().all(|oldest| oldest.unwrap() >= start));
    for (id, resident) in [1000, 2000, 3000].into_iter().enumerate() {
        assert_eq!(rotation.resident(id), Ok(resident * PAGE));
    }
}

#[test]
fn an_empty_payload_is_resident_to_the_full() {
    let file = Simulated::new(0, []);
    let mut rotation = file.watched(&Ranges::EMPTY);
    assert_eq!(rotation.resident(0), Ok(0));
    file.tick(&mut rotation);
    file.look(&mut rotation);
    assert_eq!(rotation.resident(0), Ok(0));
}

#[test]
fn many_unaligned_tensors_are_exact_and_bounded() {
    // 20,000 tensors with padding between them: each boundary is a page of two tensors.
    let ranges: Ranges = (0..20_000).map(|nth| 1000 + nth * 210_000..1000 + nth * 210_000 + 209_990).collect();
    let pages = 20_000 * 210_000 / PAGE + 2;
    let file = Simulated::new(pages, [0..pages / 3, pages / 2..pages / 2 + 4321])
        .with(|state| (state.folio, state.entry_ns) = (16, 50));
    let mut rotation = file.watched(&ranges);
    assert_eq!(rotation.resident(0), Ok(file.truth(&ranges)));
    for _ in 0..100 {
        let cost = file.tick(&mut rotation);
        assert!(cost <= BUDGET + 50_000, "{cost}");
        assert_eq!(rotation.resident(0), Ok(file.truth(&ranges)));
    }
}

fn page_sets() -> impl Strategy<Value = Ranges> {
    prop::collection::vec((0u64..3000, 1u64..400), 0..12)
        .prop_map(|pairs| pairs.into_iter().map(|(start, length)| start..start + length).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_look_is_exact(
        pairs in prop::collection::vec((0u64..3000 * PAGE, 1u64..60 * PAGE), 1..300),
        steps in prop::collection::vec((page_sets(), 0u8..4), 1..6),
        entry_ns in prop::sample::select(vec![1u64, 29, 2000]),
        kind in 0u8..4,
    ) {
        let ranges: Ranges = pairs.into_iter().map(|(start, length)| start..start + length).collect();
        let file = Simulated::new(3500, []).with(|state| {
            state.entry_ns = entry_ns;
            match kind {
                0 => state.cachestat_error = Some(libc::ENOSYS),
                1 => state.withheld = true,
                2 => state.filesystem = 0x794c_7630,
                _ => {}
            }
        });
        let mut rotation = file.watched(&ranges);
        for (present, ticks) in steps {
            file.change(|state| state.present = present);
            for _ in 0..ticks {
                file.tick(&mut rotation);
                rotation.check();
            }
            file.look(&mut rotation);
            rotation.check();
            prop_assert_eq!(rotation.resident(0), Ok(file.truth(&ranges)));
        }
    }
}

#[test]
fn a_cut_chunk_keeps_its_sum() {
    // Whole chunks were seen when half of the file was in; the other half replaces it; a tick sees a part only.
    let pages = 256 * MIB / PAGE;
    let file = Simulated::new(pages, [0..pages / 2]).with(|state| state.folio = 512);
    let mut rotation = file.watched(&whole(256 * MIB));
    for _ in 0..5 {
        file.tick(&mut rotation);
    }
    file.change(|state| {
        state.present = Ranges::from_iter([pages / 2..pages]);
        state.folio = 1;
        state.entry_ns = 200;
    });
    for _ in 0..200 {
        file.tick(&mut rotation);
        rotation.check();
        let resident = rotation.resident(0).unwrap();
        assert!(resident <= 256 * MIB);
    }
    assert_eq!(rotation.resident(0), Ok(128 * MIB));
}

#[test]
fn one_disagreement_is_not_distrust() {
    let file = Simulated::new(GIB / PAGE, [0..GIB / PAGE]);
    let mut rotation = file.watched(&whole(GIB));
    let by = |rotation: &Rotation| rotation.verdict(0).trust().by;
    file.change(|state| state.blind = true);
    file.look(&mut rotation);
    assert_eq!(by(&rotation), "mincore", "for now");
    assert_eq!(rotation.resident(0), Ok(GIB));
    // Agreement about nothing says nothing.
    file.change(|state| (state.blind, state.present) = (false, Ranges::EMPTY));
    file.look(&mut rotation);
    assert_eq!(by(&rotation), "mincore");
    file.change(|state| state.present = Ranges::from_iter([0..GIB / PAGE]));
    file.look(&mut rotation);
    assert_eq!(by(&rotation), "cachestat");
    // Two trials, and it is for good.
    for blind in [true, true, false] {
        file.change(|state| state.blind = blind);
        file.look(&mut rotation);
        assert_eq!(by(&rotation), "mincore");
        assert_eq!(rotation.resident(0), Ok(GIB));
    }
    rotation.check();
}

#[test]
fn at_marks_what_is_still_being_read_does_not_count() {
    let (mut views, file) = (Views::new(Mono(0)), Simulated::new(GIB / PAGE, [0..1_000]));
    let mut rotation = file.watched(&whole(GIB));
    views.first_seen(&rotation, 0, Mono(0));
    file.change(|state| state.in_flight = Ranges::from_iter([1_000..11_240]));
    file.tick(&mut rotation);
    assert_eq!(rotation.resident(0), Ok(11_240 * PAGE), "a tick lets it be");
    assert_eq!(file.mark(&mut rotation, &mut views), []);
    assert_eq!(rotation.resident(0), Ok(1_000 * PAGE));
    // That fewer are counted now is no fall, and neither is that they come later.
    for _ in 0..20 {
        file.tick(&mut rotation);
        assert_eq!(views.after_turn(&rotation), []);
    }
    assert_eq!(file.mark(&mut rotation, &mut views), []);
    file.change(|state| {
        state.present = Ranges::from_iter([0..11_240]);
        state.in_flight = Ranges::EMPTY;
    });
    assert_eq!(file.mark(&mut rotation, &mut views), []);
    assert_eq!(rotation.resident(0), Ok(11_240 * PAGE));
}

#[test]
fn what_is_still_being_read_makes_no_payload_whole() {
    let pages = GIB / PAGE;
    let file = Simulated::new(pages, [0..pages / 2]);
    let mut rotation = file.watched(&whole(GIB));
    assert!(!rotation.is_nearly_whole());
    file.change(|state| state.in_flight = Ranges::from_iter([pages / 2..pages]));
    file.tick(&mut rotation);
    assert!(rotation.is_nearly_whole());
    rotation.settle_in_flight(Mono(u64::MAX));
    assert_eq!(rotation.resident(0), Ok(GIB / 2));
    assert!(!rotation.is_nearly_whole());
    file.change(|state| (state.present, state.in_flight) = (Ranges::from_iter([0..pages]), Ranges::EMPTY));
    file.look(&mut rotation);
    rotation.settle_in_flight(Mono(u64::MAX));
    assert_eq!(rotation.resident(0), Ok(GIB));
}

/// A GiB of which all is in memory, as first seen.
fn seen() -> (Simulated, Rotation, Views) {
    let file = Simulated::new(GIB / PAGE, [0..GIB / PAGE]);
    let began = file.now();
    let rotation = file.watched(&whole(GIB));
    let mut views = Views::new(began);
    views.first_seen(&rotation, 0, began);
    (file, rotation, views)
}

#[test]
fn a_fall_is_told_once_with_its_bounds() {
    let (file, mut rotation, mut views) = seen();
    assert_eq!(file.mark(&mut rotation, &mut views), []);
    let before = file.now();
    file.change(|state| {
        state.present = Ranges::from_iter([0..GIB / PAGE / 4]);
        state.evicted = Ranges::from_iter([GIB / PAGE / 2..GIB / PAGE]);
    });
    let after = file.now();
    let falls = file.mark(&mut rotation, &mut views);
    let [Fall { file: 0, from, to, after: began, by }] = falls[..] else { panic!("{falls:?}") };
    assert_eq!((from, to), (GIB, GIB / 4));
    assert!(began <= before && by >= after);
    assert_eq!(rotation.recently_evicted(), [Some(GIB / 2)]);
    assert_eq!(file.mark(&mut rotation, &mut views), []);
    // What comes back and goes again is another.
    file.change(|state| state.present = Ranges::from_iter([0..GIB / PAGE]));
    assert_eq!(file.mark(&mut rotation, &mut views), []);
    file.change(|state| state.present = Ranges::EMPTY);
    assert_eq!(file.mark(&mut rotation, &mut views).len(), 1);
}

#[test]
fn a_slow_fall_adds_up_and_noise_is_none() {
    let (file, mut rotation, mut views) = seen();
    // 0.4% at a time.
    let step = GIB / PAGE / 250;
    let told: Vec<usize> = (1..=6)
        .map(|nth| {
            file.change(|state| state.present = Ranges::from_iter([nth * step..GIB / PAGE]));
            file.mark(&mut rotation, &mut views).len()
        })
        .collect();
    assert_eq!(told, [0, 0, 1, 0, 0, 1]);
}

#[test]
fn what_is_only_old_is_no_fall() {
    // In the smallest folios the rotation takes many ticks; a load passes through the file while it goes round.
    let (file, mut rotation, mut views) = seen();
    file.change(|state| state.present = Ranges::from_iter([0..GIB / PAGE / 2]));
    let mut falls = Vec::new();
    let mut ticks = 0;
    while falls.is_empty() {
        file.tick(&mut rotation);
        let told = views.after_turn(&rotation);
        if !told.is_empty() {
            assert!(rotation.resident(0).unwrap() <= GIB / 2 + GIB / 100, "told before all was seen");
        }
        falls.extend(told);
        ticks += 1;
        assert!(ticks < 2_000);
    }
    assert!(ticks > 3, "{ticks}");
    assert_eq!((falls[0].from, falls[0].to), (GIB, GIB / 2));
    // While it fills up nothing falls, however old the parts are.
    for tick in 0..300 {
        file.change(|state| state.present = Ranges::from_iter([0..GIB / PAGE / 2 + tick * 400]));
        file.tick(&mut rotation);
        assert_eq!(views.after_turn(&rotation), [], "tick {tick}");
    }
}

#[test]
fn a_shorter_file_and_another_call_are_no_falls() {
    let (file, mut rotation, mut views) = seen();
    file.change(|state| {
        state.length /= 2;
        state.present = Ranges::from_iter([0..state.length]);
    });
    assert_eq!(file.mark(&mut rotation, &mut views), []);
    file.change(|state| state.present = Ranges::EMPTY);
    let falls = file.mark(&mut rotation, &mut views);
    assert_eq!(falls.iter().map(|fall| (fall.from, fall.to)).collect::<Vec<_>>(), [(GIB / 2, 0)]);
    // Withheld, and known again: nobody saw what was between.
    file.change(|state| state.present = Ranges::from_iter([0..1_000]));
    assert_eq!(file.mark(&mut rotation, &mut views), []);
    let withhold = |state: &mut State, withheld: bool| {
        state.withheld = withheld;
        state.cachestat_error = withheld.then_some(libc::EPERM);
    };
    file.change(|state| withhold(state, true));
    rotation.judge_all(Mono(u64::MAX));
    views.forget(0);
    assert_eq!(views.after_turn(&rotation), []);
    file.change(|state| {
        withhold(state, false);
        state.present = Ranges::EMPTY;
    });
    file.look(&mut rotation);
    assert_eq!(views.after_turn(&rotation), []);
}

#[test]
fn evicted_pages_are_counted_where_mincore_answers_in_the_other_calls_place() {
    let (file, mut rotation, mut views) = seen();
    file.change(|state| {
        state.entry_ns = 500;
        state.evicted = Ranges::from_iter([0..777]);
    });
    for _ in 0..200 {
        file.tick(&mut rotation);
    }
    assert_eq!(rotation.recently_evicted(), [None], "mincore is cheaper here");
    file.mark(&mut rotation, &mut views);
    assert_eq!(rotation.recently_evicted(), [Some(777 * PAGE)]);
    // Where cachestat must not be asked, nobody tells.
    let overlay = Simulated::new(1_000, [0..1_000]).with(|state| state.filesystem = 0x794c_7630);
    let mut rotation = overlay.watched(&whole(1_000 * PAGE));
    rotation.count_evicted(Mono(u64::MAX));
    assert_eq!(rotation.recently_evicted(), [None]);
}
