//! The rotation: the watched pages of all files as chunks in the order of their asking, oldest first, in two lanes.
//! What is not wholly in memory moves: it is where a load shows, and empty pages are cheap to ask about, so it goes
//! first. What is wholly in memory is settled; it changes by eviction alone, and is asked about with what is left of
//! the time, or every fourth time where it was not for long.
//!
//! One call about a chunk must not overrun a tick, whatever the file holds, and a large file of which nothing is in
//! memory must not cost more than a small one. Both calls' cost depends on what is cached and how (a page-cache entry
//! is 4 KiB to 2 MiB), which cannot be known before asking. So chunks have no fixed size: neighbours that were cheap are
//! asked about together, and one that was dear is cut.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use super::kernel::PageCache;
use super::pages::Watched;
use super::trust::{Places, Verdict, decide};
use crate::clock::{Beat, Mono};

/// Nanoseconds that one call should take at most; a chunk is cut at twice as much.
const TARGET_NS: u64 = 90_000;

/// Odd pages of one chunk that are asked about one by one, at about half a microsecond each.
const FEW_ODD: usize = 64;

/// What may have come into the cache since a chunk was seen, in bytes a second. A chunk that was empty then may be dear
/// now, so that its length is limited by its age.
const ARRIVAL: u64 = 320 << 20;

/// Bytes of a step into what was never seen, or where a dear chunk must be cut: at first, and at most where the steps
/// before it were cheap. The latter is also the least length that age limits to.
const STEP: Range<u64> = 16 << 20..64 << 20;

/// Pages of the shortest step.
const LEAST_STEP: u64 = 64;

/// What mincore costs a page before it was measured here.
const MINCORE_NS: f64 = 50.0;

/// The most that is believed of the cost of a call and of each page that it stops at, in nanoseconds; three times what
/// was measured.
const CALL_NS: u64 = 2_000;
const STOP_NS: u64 = 300;

/// What a question about one odd page counts for, in such stops.
const ODD_STOPS: u64 = 7;

/// A file of which a chunk gained so many bytes is filling up: chunks seen before that, or less than so long after it, are
/// kept short, in bytes, whatever their age.
const FILLING_STEP: u64 = 32 << 20;
const GAIN: u64 = 1 << 20;
const FILLING_NS: u64 = 1_000_000_000;

/// How much dearer than mincore cachestat must be before mincore is asked.
const DEARER: f64 = 1.3;

/// After so long what is settled has one turn in so many, whatever moves.
const SETTLED_NS: u64 = 1_000_000_000;
const SETTLED_SHARE: u32 = 4;

/// How many places of a file a trial of trust compares the calls at.
pub const PLACES: u64 = 8;

/// Places that later trials walk through.
const PLACES_BETWEEN: u64 = 61;

/// See [`Rotation::is_nearly_whole`].
const NEARLY_WHOLE: u128 = 980;

/// What came in for so long before a mark may be read-ahead that is not finished.
const IN_FLIGHT_NS: u64 = 200_000_000;

/// Some pages of one file.
#[derive(Clone, Debug)]
struct Chunk {
    file: usize,
    pages: Range<u64>,
    /// Watched bytes in them.
    bytes: u64,
    /// Watched bytes in memory when last asked; 0 before that.
    resident: u64,
    /// `resident` is known only as a sum with the next chunk's: both are parts of one that was cut since.
    with_next: bool,
    /// Of what cachestat saw, what mincore then did not: pages that were still being read.
    in_flight: u64,
    /// When it was last seen to hold more than before.
    gained: Option<Mono>,
    /// Pages that were evicted not long ago, where cachestat was asked.
    evicted: Option<u64>,
    /// When the last question was put.
    asked: Option<Mono>,
    /// What each call cost when it was last tried here, in nanoseconds.
    cachestat_ns: Option<u64>,
    mincore_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Mincore,
    Cachestat,
}

enum Answer {
    /// Watched bytes in memory, how many pages the kernel may have stopped at to tell, and how many were evicted not long
    /// ago, where it tells that.
    Bytes { resident: u64, stops: u64, evicted: Option<u64> },
    /// Too many odd pages to tell without cutting the chunk.
    TooCoarse,
}

/// A question and its answer.
struct Seen {
    asked: Mono,
    call: Call,
    /// Nanoseconds that the answer took.
    cost: u64,
    /// Watched bytes in memory.
    resident: u64,
    /// Pages evicted not long ago.
    evicted: Option<u64>,
}

/// What is held against cachestat's answers about one file.
enum Doubt {
    None,
    /// It was contradicted at one trial.
    Once(String),
    /// And at another: it is not believed any more, whatever later trials say.
    Settled(String),
}

/// One file in the rotation.
struct File {
    cache: Box<dyn PageCache>,
    watched: Watched,
    verdict: Verdict,
    doubt: Doubt,
    /// Watched bytes.
    bytes: u64,
    /// The sums over its chunks.
    resident: u64,
    in_flight: u64,
    /// Chunks not asked about yet.
    unasked: usize,
    /// What mincore costs a page, a fading mean.
    mincore_ns: f64,
    /// When it was last seen to fill up.
    gained: Option<Mono>,
    /// Pages of the next step into the unknown.
    step: u64,
}

/// Which of the two queues a chunk is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Moving,
    Settled,
}

const LANES: [Lane; 2] = [Lane::Moving, Lane::Settled];

/// All files, and whose turn it is.
pub struct Rotation {
    files: Vec<File>,
    /// By [`Lane`]. What was not asked about yet is in the first.
    queues: [VecDeque<Chunk>; 2],
    /// Turns for which a settled chunk waited in vain.
    passed_over: u32,
    clock: Box<dyn Fn() -> Mono + Send>,
    trust: Beat,
    trials: u64,
}

impl Chunk {
    fn length(&self) -> u64 {
        self.pages.end - self.pages.start
    }

    fn is_uniform(&self) -> bool {
        self.resident == 0 || self.resident == self.bytes
    }

    /// Cuts off all but the first `length` pages. Which part the resident bytes are in is not known.
    fn cut(&mut self, length: u64, watched: &Watched) -> Chunk {
        let whole = self.length();
        let share =
            |cost: Option<u64>| cost.map(|cost| (u128::from(cost) * u128::from(length) / u128::from(whole)) as u64);
        let mut rest = self.clone();
        rest.pages.start += length;
        self.pages.end = rest.pages.start;
        self.bytes = watched.bytes(&self.pages);
        rest.bytes -= self.bytes;
        self.resident = self.resident.min(self.bytes);
        rest.resident -= self.resident;
        // Both are to be asked again: until then it may stand with either.
        self.in_flight = 0;
        (self.evicted, rest.evicted) = (None, None);
        self.with_next = self.asked.is_some();
        for (first, rest) in
            [(&mut self.cachestat_ns, &mut rest.cachestat_ns), (&mut self.mincore_ns, &mut rest.mincore_ns)]
        {
            *first = share(*first);
            *rest = rest.zip(*first).map(|(whole, first)| whole - first);
        }
        rest
    }

    fn join(&mut self, next: Chunk) {
        self.pages.end = next.pages.end;
        self.bytes += next.bytes;
        self.resident += next.resident;
        self.in_flight += next.in_flight;
        self.gained = self.gained.max(next.gained);
        self.evicted = self.evicted.zip(next.evicted).map(|(a, b)| a + b);
        self.with_next = next.with_next;
        self.cachestat_ns = self.cachestat_ns.zip(next.cachestat_ns).map(|(a, b)| a + b);
        self.mincore_ns = self.mincore_ns.zip(next.mincore_ns).map(|(a, b)| a + b);
    }
}

impl File {
    /// Which call is the cheaper one for a chunk, and what it should cost.
    fn choose(&self, chunk: &Chunk) -> (Call, u64) {
        let mincore = chunk.mincore_ns.unwrap_or((self.mincore_ns * chunk.length() as f64) as u64);
        match chunk.cachestat_ns {
            _ if !self.verdict.cachestat => (Call::Mincore, mincore),
            Some(cachestat) if self.verdict.mincore && cachestat as f64 > mincore as f64 * DEARER => {
                (Call::Mincore, mincore)
            }
            Some(cachestat) => (Call::Cachestat, cachestat),
            None => (Call::Cachestat, TARGET_NS),
        }
    }

    /// How many pages one question may cover `now` that begins with `chunk`, by what may have come in since.
    fn most_by_age(&self, chunk: &Chunk, now: Mono) -> u64 {
        let Some(asked) = chunk.asked else { return self.step };
        if self.gained.is_some_and(|gained| asked < gained.plus(FILLING_NS)) {
            return (FILLING_STEP / self.watched.page_size()).max(1);
        }
        let bytes = u128::from(ARRIVAL) * 1_000_000_000 / u128::from(now.since(asked).max(1));
        ((bytes.min(u128::from(u64::MAX)) as u64).max(STEP.end) / self.watched.page_size()).max(1)
    }

    /// How many pages of `chunk` one question may cover, by what it cost last.
    fn most_by_cost(&self, chunk: &Chunk) -> u64 {
        let (_, cost) = self.choose(chunk);
        if cost <= 2 * TARGET_NS {
            return chunk.length();
        }
        // Where in the chunk the dear part lies is not known.
        let proportional = (u128::from(chunk.length()) * u128::from(TARGET_NS) / u128::from(cost)) as u64;
        proportional.min(self.step).max(1)
    }

    /// Whether one question may cover both.
    fn may_join(&self, chunk: &Chunk, next: &Chunk, most: u64) -> bool {
        let pages = chunk.pages.start..next.pages.end;
        let ((call, cost), (next_call, next_cost)) = (self.choose(chunk), self.choose(next));
        chunk.pages.end == next.pages.start
            && pages.end - pages.start <= most
            && call == next_call
            && cost + next_cost <= TARGET_NS
            && ((chunk.is_uniform() && next.is_uniform() && (chunk.resident == 0) == (next.resident == 0))
                || self.watched.odd(&pages).len() <= FEW_ODD)
    }

    fn ask(&mut self, pages: &Range<u64>, call: Call) -> io::Result<Answer> {
        let page_size = self.watched.page_size();
        let odd = self.watched.odd(pages);
        if call == Call::Mincore {
            let answer = self.cache.mincore(pages.clone())?;
            let whole = answer.iter().map(|page| u64::from(page & 1)).sum::<u64>() * page_size;
            let in_memory = |page: u64| answer[(page - pages.start) as usize] & 1 == 1;
            let unwatched: u64 = odd.iter().filter(|odd| in_memory(odd.page)).map(|odd| odd.unwatched).sum();
            return Ok(Answer::Bytes { resident: whole - unwatched, stops: answer.len() as u64, evicted: None });
        }
        let length = pages.end - pages.start;
        let bytes = self.watched.bytes(pages);
        let counts = self.cache.cachestat(pages.clone())?;
        let count = counts.cached;
        let mut stops = count.saturating_add(counts.evicted);
        let resident = if count == 0 {
            Some(0)
        } else if count >= length {
            Some(bytes)
        } else if odd.is_empty() {
            Some(count * page_size)
        } else if odd.len() <= FEW_ODD {
            let mut unwatched = 0;
            for odd in odd {
                if self.cache.cachestat(odd.page..odd.page + 1)?.cached > 0 {
                    unwatched += odd.unwatched;
                }
            }
            stops += ODD_STOPS * odd.len() as u64;
            // The pages may have come and gone between the calls.
            Some((count * page_size).saturating_sub(unwatched).min(bytes))
        } else {
            None
        };
        if let Some(resident) = resident {
            return Ok(Answer::Bytes { resident, stops, evicted: Some(counts.recently_evicted) });
        }
        if self.verdict.mincore && self.mincore_ns * length as f64 <= TARGET_NS as f64 {
            return self.ask(pages, Call::Mincore);
        }
        Ok(Answer::TooCoarse)
    }

    fn learn(&mut self, chunk: &mut Chunk, call: Call, cost: u64) {
        match call {
            Call::Cachestat => chunk.cachestat_ns = Some(cost),
            Call::Mincore => {
                chunk.mincore_ns = Some(cost);
                let here = cost as f64 / chunk.length().max(1) as f64;
                // Small questions pay for the call, not for pages.
                if chunk.length() >= 256 {
                    self.mincore_ns += (here - self.mincore_ns) / 8.0;
                }
                // What made cachestat dear may have passed: it is tried again when this has faded.
                chunk.cachestat_ns = chunk.cachestat_ns.map(|cost| cost - cost / 32);
            }
        }
        if chunk.asked.is_none() || chunk.with_next {
            let page_size = self.watched.page_size();
            if cost < TARGET_NS / 4 {
                self.step = (self.step * 2).min(STEP.end / page_size);
            } else if cost > TARGET_NS {
                self.step = (self.step / 2).max(LEAST_STEP);
            }
        }
    }
}

impl Rotation {
    /// No file yet; `clock` says what time it is.
    pub fn new(clock: impl Fn() -> Mono + Send + 'static) -> Rotation {
        let mut trust = Beat::TRUST;
        // A file is tried when it is taken in.
        trust.done(clock());
        Rotation {
            files: Vec::new(),
            queues: Default::default(),
            passed_over: 0,
            trust,
            trials: 0,
            clock: Box::new(clock),
        }
    }

    /// What time it is.
    pub fn now(&self) -> Mono {
        (self.clock)()
    }

    /// Takes in a file, finds out who may be asked about it, and asks about all of it unless `deadline` passes.
    pub fn add(&mut self, mut cache: Box<dyn PageCache>, watched: Watched, deadline: Mono) -> &Verdict {
        let verdict = decide(&mut *cache, &watched, Places::all(PLACES));
        let id = self.files.len();
        self.files.push(File {
            cache,
            step: (STEP.start / watched.page_size()).max(1),
            bytes: watched.runs().iter().map(|run| watched.bytes(run)).sum(),
            watched,
            doubt: if verdict.contradicted { Doubt::Once(verdict.because.clone()) } else { Doubt::None },
            verdict,
            resident: 0,
            in_flight: 0,
            unasked: 0,
            mincore_ns: MINCORE_NS,
            gained: None,
        });
        self.enlist(id);
        let since = self.now();
        let unasked = |chunk: &Chunk| chunk.file == id && chunk.asked.is_none();
        while self.front(Lane::Moving).is_some_and(unasked) && self.now() < deadline {
            self.visit(Lane::Moving, since);
        }
        &self.files[id].verdict
    }

    /// Puts all of a file at the front, not asked about yet.
    fn enlist(&mut self, id: usize) {
        let file = &mut self.files[id];
        if file.verdict.is_none() {
            return;
        }
        file.unasked = file.watched.runs().len();
        for pages in file.watched.runs().iter().rev() {
            self.queues[Lane::Moving as usize].push_front(Chunk {
                file: id,
                pages: pages.clone(),
                bytes: file.watched.bytes(pages),
                resident: 0,
                with_next: false,
                in_flight: 0,
                gained: None,
                evicted: None,
                asked: None,
                cachestat_ns: None,
                mincore_ns: None,
            });
        }
    }

    /// Takes a new verdict; what was learnt from calls that are no longer believed is forgotten.
    fn take(&mut self, id: usize, mut verdict: Verdict) {
        let file = &mut self.files[id];
        match &file.doubt {
            Doubt::Settled(why) => verdict = verdict.without_cachestat(why),
            Doubt::Once(_) if verdict.contradicted => file.doubt = Doubt::Settled(verdict.because.clone()),
            // Where nothing was in memory to compare, the calls could only agree.
            Doubt::Once(why) if verdict.agreed == 0 => verdict = verdict.without_cachestat(why),
            Doubt::Once(_) => file.doubt = Doubt::None,
            Doubt::None if verdict.contradicted => file.doubt = Doubt::Once(verdict.because.clone()),
            Doubt::None => {}
        }
        let same = file.verdict.same_calls(&verdict);
        file.verdict = verdict;
        if !same {
            file.resident = 0;
            file.in_flight = 0;
            file.unasked = 0;
            self.queues.iter_mut().for_each(|queue| queue.retain(|chunk| chunk.file != id));
            self.enlist(id);
        }
    }

    /// Tries again who may be asked about a file.
    fn judge(&mut self, id: usize, places: Places) {
        let file = &mut self.files[id];
        let verdict = decide(&mut *file.cache, &file.watched, places);
        self.take(id, verdict);
    }

    /// Tries the trust in every file, at least one and as many as there is time for.
    pub fn judge_all(&mut self, deadline: Mono) {
        let count = (2 * PLACES / self.files.len().max(1) as u64).clamp(1, PLACES);
        for _ in 0..self.files.len() {
            self.judge_next(count);
            if self.now() >= deadline {
                return;
            }
        }
    }

    /// Tries the trust in one file, once a second.
    pub fn judge_one(&mut self) {
        let now = self.now();
        if self.trust.is_due(now) && !self.files.is_empty() {
            self.trust.done(now);
            self.judge_next(1);
        }
    }

    /// The next file's turn, compared at `count` places, other ones each time.
    fn judge_next(&mut self, count: u64) {
        let id = self.trials as usize % self.files.len();
        self.judge(id, Places { first: self.trials % PLACES_BETWEEN, count, of: PLACES_BETWEEN });
        self.trials += 1;
    }

    /// Asks about the chunks that were asked about longest ago, until all are newer than `since` or the next would not
    /// be answered by `deadline`; about one in any case.
    pub fn turn(&mut self, since: Mono, deadline: Mono) {
        let mut first = true;
        while let Some(lane) = self.whose_turn(since) {
            let Some(chunk) = self.front(lane) else { return };
            let (_, cost) = self.files[chunk.file].choose(chunk);
            // A dearer one will be cut.
            let cost = if cost > 2 * TARGET_NS { TARGET_NS } else { cost };
            if !first && self.now().plus(cost) > deadline {
                return;
            }
            self.visit(lane, since);
            first = false;
        }
    }

    fn front(&self, lane: Lane) -> Option<&Chunk> {
        self.queues[lane as usize].front()
    }

    /// The lane of the next chunk that was not asked about since `since`.
    fn whose_turn(&mut self, since: Mono) -> Option<Lane> {
        let due = |lane| self.front(lane).filter(|chunk| chunk.asked.is_none_or(|asked| asked < since));
        match (due(Lane::Moving), due(Lane::Settled)) {
            (None, None) => None,
            (Some(_), None) => Some(Lane::Moving),
            (None, Some(_)) => Some(Lane::Settled),
            (Some(_), Some(settled)) => {
                let long_ago = settled.asked.is_none_or(|asked| self.now().since(asked) > SETTLED_NS);
                self.passed_over = if long_ago { (self.passed_over + 1) % SETTLED_SHARE } else { 0 };
                let its_turn = long_ago && self.passed_over == 0;
                Some(if its_turn { Lane::Settled } else { Lane::Moving })
            }
        }
    }

    /// Asks about what is at the front of a lane.
    fn visit(&mut self, lane: Lane, since: Mono) {
        let Some(chunk) = self.next(lane, since) else { return };
        let file = &mut self.files[chunk.file];
        let (call, _) = file.choose(&chunk);
        let asked = (self.clock)();
        match file.ask(&chunk.pages, call) {
            Ok(Answer::Bytes { resident, stops, evicted }) => {
                // No answer takes longer; what goes beyond it, others had the CPU.
                let cost = (self.clock)().since(asked).min(CALL_NS + stops.saturating_mul(STOP_NS));
                self.enter(lane, chunk, Seen { asked, call, cost, resident, evicted });
            }
            Ok(Answer::TooCoarse) => {
                let half = chunk.length() / 2;
                let first = self.cut(lane, chunk, half);
                self.queues[lane as usize].push_front(first);
            }
            Err(error) => {
                // The verdict was made with this call answering: either something changed, or it cannot be had.
                let mut verdict = decide(&mut *file.cache, &file.watched, Places::all(1));
                if verdict.same_calls(&file.verdict) {
                    verdict = Verdict::none(format!("{}: {error}", call.name()));
                }
                self.take(chunk.file, verdict);
            }
        }
    }

    /// Takes the chunk at the front of a lane: its beginning, if all of it would be too dear; or together with those behind it that
    /// were not asked about since `since`, if they are cheap.
    fn next(&mut self, lane: Lane, since: Mono) -> Option<Chunk> {
        let now = self.now();
        let mut chunk = self.queues[lane as usize].pop_front()?;
        let file = &self.files[chunk.file];
        let by_age = file.most_by_age(&chunk, now);
        let most = file.most_by_cost(&chunk).min(by_age);
        if chunk.length() > most {
            return Some(self.cut(lane, chunk, most));
        }
        if chunk.asked.is_some() {
            while let Some(next) = self.queues[lane as usize].pop_front_if(|next| {
                next.file == chunk.file
                    && next.asked.is_some_and(|asked| asked < since)
                    && file.may_join(&chunk, next, by_age)
            }) {
                chunk.join(next);
            }
        }
        Some(chunk)
    }

    /// Puts all of a chunk but its first `length` pages back to the front of its lane.
    fn cut(&mut self, lane: Lane, mut chunk: Chunk, length: u64) -> Chunk {
        let file = &mut self.files[chunk.file];
        let rest = chunk.cut(length, &file.watched);
        file.unasked += usize::from(rest.asked.is_none());
        self.queues[lane as usize].push_front(rest);
        chunk
    }

    /// Enters what was seen of a chunk that comes from this lane into the books, and puts it at the end of the lane where
    /// it now belongs.
    fn enter(&mut self, lane: Lane, mut chunk: Chunk, seen: Seen) {
        let file = &mut self.files[chunk.file];
        if chunk.with_next
            && let Some(next) = self.queues[lane as usize].front_mut()
        {
            // What was known of the two as a sum, figure and cost, leaves this much to the other.
            let theirs = (chunk.resident + next.resident).saturating_sub(seen.resident).min(next.bytes);
            file.resident = file.resident - next.resident + theirs;
            next.resident = theirs;
            let (ours, theirs) = match seen.call {
                Call::Cachestat => (chunk.cachestat_ns, &mut next.cachestat_ns),
                Call::Mincore => (chunk.mincore_ns, &mut next.mincore_ns),
            };
            *theirs = theirs.zip(ours).map(|(theirs, ours)| (theirs + ours).saturating_sub(seen.cost));
        } else if chunk.asked.is_some() && seen.resident > chunk.resident + GAIN {
            file.gained = Some(seen.asked);
        }
        // What the parts of one that was cut held before is not known.
        let may_have_gained = if chunk.with_next { file.gained.is_some() } else { seen.resident > chunk.resident };
        if chunk.asked.is_some() && may_have_gained && seen.call == Call::Cachestat {
            chunk.gained = Some(seen.asked);
        }
        chunk.evicted = seen.evicted;
        file.in_flight -= std::mem::take(&mut chunk.in_flight);
        file.learn(&mut chunk, seen.call, seen.cost);
        file.unasked -= usize::from(chunk.asked.is_none());
        file.resident = file.resident - chunk.resident + seen.resident;
        chunk.with_next = false;
        chunk.resident = seen.resident;
        chunk.asked = Some(seen.asked);
        // To mincore an empty page is as dear as any other, so that nothing is gained by asking about it first.
        let settled = chunk.resident == chunk.bytes && file.verdict.cachestat;
        let lane = if settled { Lane::Settled } else { Lane::Moving };
        self.queues[lane as usize].push_back(chunk);
    }

    /// Whether of the watched bytes that can be seen [`NEARLY_WHOLE`] parts of a thousand or more are in the cache.
    pub fn is_nearly_whole(&self) -> bool {
        let seen = || self.files.iter().filter(|file| !file.verdict.is_none());
        let resident: u64 = seen().map(|file| file.resident).sum();
        let bytes: u64 = seen().map(|file| file.bytes).sum();
        resident > 0 && u128::from(resident) * 1000 >= u128::from(bytes) * NEARLY_WHOLE
    }

    /// Asks mincore about what cachestat has just seen to come in, as far as there is time: of that, some may still be
    /// being read, which is not in memory yet.
    pub fn settle_in_flight(&mut self, deadline: Mono) {
        let now = self.now();
        let is_new = |chunk: &Chunk| chunk.gained.is_some_and(|gained| now.since(gained) < IN_FLIGHT_NS);
        for lane in LANES {
            let queue = &self.queues[lane as usize];
            let new: Vec<(usize, u64)> =
                queue.iter().filter(|chunk| is_new(chunk)).map(|chunk| (chunk.file, chunk.pages.start)).collect();
            for (id, start) in new {
                let file = &mut self.files[id];
                if !file.verdict.mincore || !file.verdict.cachestat {
                    continue;
                }
                let queue = &mut self.queues[lane as usize];
                let Some(index) = queue.iter().position(|chunk| (chunk.file, chunk.pages.start) == (id, start)) else {
                    continue;
                };
                let length = queue[index].length();
                if (self.clock)().plus((file.mincore_ns * length as f64) as u64) > deadline {
                    return;
                }
                // One that is known as a part of a sum only is old, and its turn will come.
                if queue[index].with_next {
                    continue;
                }
                let asked = (self.clock)();
                let pages = queue[index].pages.clone();
                // An error is the next turn's to meet.
                let Ok(Answer::Bytes { resident, stops, .. }) = file.ask(&pages, Call::Mincore) else { return };
                let Some(mut chunk) = queue.remove(index) else { continue };
                let cost = (self.clock)().since(asked).min(CALL_NS + stops.saturating_mul(STOP_NS));
                let in_flight = chunk.resident.saturating_sub(resident);
                let evicted = chunk.evicted;
                chunk.gained = None;
                self.enter(lane, chunk, Seen { asked, call: Call::Mincore, cost, resident, evicted });
                let entered = self
                    .queues
                    .iter_mut()
                    .filter_map(VecDeque::back_mut)
                    .find(|chunk| (chunk.file, chunk.pages.start) == (id, start));
                if let Some(chunk) = entered {
                    chunk.in_flight = in_flight;
                    self.files[id].in_flight += in_flight;
                }
            }
        }
    }

    /// Asks cachestat about evicted pages where mincore was asked in its place, as far as there is time.
    pub fn count_evicted(&mut self, deadline: Mono) {
        for queue in &mut self.queues {
            for chunk in queue.iter_mut().filter(|chunk| chunk.evicted.is_none()) {
                let file = &mut self.files[chunk.file];
                if !file.verdict.cachestat {
                    continue;
                }
                if (self.clock)() >= deadline {
                    return;
                }
                chunk.evicted = file.cache.cachestat(chunk.pages.clone()).ok().map(|counts| counts.recently_evicted);
            }
        }
    }

    /// Bytes of a file's watched pages that were evicted not long ago: so that their coming back would be a sign of
    /// memory pressure (cachestat(2), `nr_recently_evicted`). `None` where not all were asked about by it.
    pub fn recently_evicted(&self) -> Vec<Option<u64>> {
        let told = |file: &File| (file.verdict.cachestat && file.unasked == 0).then_some(0);
        let mut evicted: Vec<Option<u64>> = self.files.iter().map(told).collect();
        for chunk in self.queues.iter().flatten() {
            let page_size = self.files[chunk.file].watched.page_size();
            let sum = &mut evicted[chunk.file];
            *sum = sum.zip(chunk.evicted).map(|(sum, pages)| sum + pages * page_size);
        }
        evicted
    }

    /// Watched bytes of a file that are in the cache, those that are still being read included; `None` where that is not
    /// known.
    pub fn cached(&self, id: usize) -> Option<u64> {
        let resident = self.resident(id).ok()?;
        Some(resident + self.files[id].in_flight)
    }

    /// Watched bytes of a file.
    pub fn watched(&self, id: usize) -> u64 {
        self.files[id].bytes
    }

    /// The file's length now, in pages.
    pub fn length(&self, id: usize) -> Option<u64> {
        self.files[id].cache.length().ok()
    }

    /// How many files there are.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// Resident bytes of a file's watched ranges, or why they are not known.
    pub fn resident(&self, id: usize) -> Result<u64, &str> {
        let file = &self.files[id];
        if file.verdict.is_none() {
            Err(&file.verdict.because)
        } else if file.unasked > 0 {
            Err("not all asked yet")
        } else {
            Ok(file.resident)
        }
    }

    /// When the chunk asked about longest ago was asked about; `None` if there is none, or one never was.
    pub fn oldest(&self) -> Option<Mono> {
        LANES.into_iter().filter_map(|lane| self.front(lane)).map(|chunk| chunk.asked).min().flatten()
    }

    /// The same for each file.
    pub fn oldest_of_each(&self) -> Vec<Option<Mono>> {
        let mut oldest: Vec<Option<Option<Mono>>> = vec![None; self.files.len()];
        for queue in &self.queues {
            let mut missing: Vec<bool> = vec![true; self.files.len()];
            let mut left = self.files.len();
            for chunk in queue {
                if std::mem::take(&mut missing[chunk.file]) {
                    // Not asked about yet is older than anything.
                    let asked = oldest[chunk.file].map_or(chunk.asked, |other| other.min(chunk.asked));
                    oldest[chunk.file] = Some(asked);
                    left -= 1;
                    if left == 0 {
                        break;
                    }
                }
            }
        }
        oldest.into_iter().map(Option::flatten).collect()
    }

    /// Asks about a file's pages outside of the rotation, which learns nothing from it.
    pub fn ask_aside<T>(
        &mut self,
        id: usize,
        ask: impl FnOnce(&mut dyn PageCache, &Verdict) -> Result<T, String>,
    ) -> Result<T, String> {
        let file = &mut self.files[id];
        if file.verdict.is_none() {
            return Err(file.verdict.because.clone());
        }
        ask(&mut *file.cache, &file.verdict)
    }

    /// Who may be asked about a file.
    pub fn verdict(&self, id: usize) -> &Verdict {
        &self.files[id].verdict
    }
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Call::Mincore => "mincore",
            Call::Cachestat => "cachestat",
        }
    }
}

#[cfg(test)]
impl Rotation {
    /// How many chunks there are.
    pub fn chunks(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// Panics unless the books are in order: the chunks cover each file once, oldest first, and add up.
    pub fn check(&self) {
        for queue in &self.queues {
            assert!(queue.iter().zip(queue.iter().skip(1)).all(|(a, b)| a.asked <= b.asked));
        }
        assert!(self.queues[Lane::Settled as usize].iter().all(|chunk| chunk.asked.is_some()));
        for (id, file) in self.files.iter().enumerate() {
            let mut chunks: Vec<_> = self.queues.iter().flatten().filter(|chunk| chunk.file == id).collect();
            assert_eq!(chunks.iter().map(|chunk| chunk.resident).sum::<u64>(), file.resident);
            assert_eq!(chunks.iter().filter(|chunk| chunk.asked.is_none()).count(), file.unasked);
            assert_eq!(chunks.iter().map(|chunk| chunk.in_flight).sum::<u64>(), file.in_flight);
            chunks.sort_by_key(|chunk| chunk.pages.start);
            for chunk in &chunks {
                assert!(chunk.resident <= chunk.bytes);
                assert_eq!(chunk.bytes, file.watched.bytes(&chunk.pages));
            }
            let mut covered: Vec<Range<u64>> = Vec::new();
            for pages in chunks.iter().map(|chunk| chunk.pages.clone()) {
                match covered.last_mut() {
                    Some(last) if last.end == pages.start => last.end = pages.end,
                    _ => covered.push(pages),
                }
            }
            assert!(file.verdict.is_none() || covered == file.watched.runs());
        }
    }
}
