//! The rotation: the watched pages of all files as chunks in the order of their asking, oldest first.
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
use crate::clock::Mono;

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

/// What mincore costs a page before it was measured here.
const MINCORE_NS: f64 = 50.0;

/// A file of which a chunk gained so many bytes is filling up: chunks seen before that, or less than so long after it, are
/// kept short whatever their age.
const GAIN: u64 = 1 << 20;
const FILLING_NS: u64 = 1_000_000_000;

/// How much dearer than mincore cachestat must be before mincore is asked.
const DEARER: f64 = 1.3;

/// How often the trust in a file is tried between looks.
const TRUST_EVERY_NS: u64 = 1_000_000_000;

/// How many places of a file a trial of trust compares the calls at.
pub const PLACES: u64 = 8;

/// Places that later trials walk through.
const PLACES_BETWEEN: u64 = 61;

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
    /// Watched bytes in memory.
    Bytes(u64),
    /// Too many odd pages to tell without cutting the chunk.
    TooCoarse,
}

/// One file in the rotation.
struct File {
    cache: Box<dyn PageCache>,
    watched: Watched,
    verdict: Verdict,
    /// Why cachestat is not believed any more, whatever later trials say.
    disbelief: Option<String>,
    /// The sum over its chunks.
    resident: u64,
    /// Chunks not asked about yet.
    unasked: usize,
    /// What mincore costs a page, a fading mean.
    mincore_ns: f64,
    /// When it was last seen to fill up.
    gained: Option<Mono>,
    /// Pages of the next step into the unknown.
    step: u64,
}

/// All files, and whose turn it is.
pub struct Rotation {
    files: Vec<File>,
    queue: VecDeque<Chunk>,
    clock: Box<dyn Fn() -> Mono + Send>,
    trust_tried: Mono,
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
            return (STEP.end / self.watched.page_size()).max(1);
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
            return Ok(Answer::Bytes(whole - unwatched));
        }
        let length = pages.end - pages.start;
        let bytes = self.watched.bytes(pages);
        match self.cache.cachestat(pages.clone())? {
            0 => return Ok(Answer::Bytes(0)),
            count if count >= length => return Ok(Answer::Bytes(bytes)),
            count if odd.is_empty() => return Ok(Answer::Bytes(count * page_size)),
            count if odd.len() <= FEW_ODD => {
                let mut unwatched = 0;
                for odd in odd {
                    if self.cache.cachestat(odd.page..odd.page + 1)? > 0 {
                        unwatched += odd.unwatched;
                    }
                }
                // The pages may have come and gone between the calls.
                return Ok(Answer::Bytes((count * page_size).saturating_sub(unwatched).min(bytes)));
            }
            _ => {}
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
                self.step = (self.step / 2).max(1);
            }
        }
    }
}

impl Rotation {
    /// No file yet; `clock` says what time it is.
    pub fn new(clock: impl Fn() -> Mono + Send + 'static) -> Rotation {
        Rotation { files: Vec::new(), queue: VecDeque::new(), trust_tried: clock(), trials: 0, clock: Box::new(clock) }
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
            watched,
            disbelief: verdict.contradicted.then(|| verdict.because.clone()),
            verdict,
            resident: 0,
            unasked: 0,
            mincore_ns: MINCORE_NS,
            gained: None,
        });
        self.enlist(id);
        let since = self.now();
        while self.queue.front().is_some_and(|chunk| chunk.file == id && chunk.asked.is_none()) && self.now() < deadline
        {
            self.visit(since);
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
            self.queue.push_front(Chunk {
                file: id,
                pages: pages.clone(),
                bytes: file.watched.bytes(pages),
                resident: 0,
                with_next: false,
                asked: None,
                cachestat_ns: None,
                mincore_ns: None,
            });
        }
    }

    /// Takes a new verdict; what was learnt from calls that are no longer believed is forgotten.
    fn take(&mut self, id: usize, mut verdict: Verdict) {
        let file = &mut self.files[id];
        match &file.disbelief {
            Some(why) => verdict = verdict.without_cachestat(why),
            None if verdict.contradicted => file.disbelief = Some(verdict.because.clone()),
            None => {}
        }
        let same = file.verdict.same_calls(&verdict);
        file.verdict = verdict;
        if !same {
            file.resident = 0;
            file.unasked = 0;
            self.queue.retain(|chunk| chunk.file != id);
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

    /// Tries the trust in one file, now and then.
    pub fn judge_one(&mut self) {
        let now = self.now();
        if now.since(self.trust_tried) >= TRUST_EVERY_NS && !self.files.is_empty() {
            self.trust_tried = now;
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
        while let Some(chunk) = self.queue.front() {
            if chunk.asked.is_some_and(|asked| asked >= since) {
                return;
            }
            let (_, cost) = self.files[chunk.file].choose(chunk);
            // A dearer one will be cut.
            let cost = if cost > 2 * TARGET_NS { TARGET_NS } else { cost };
            if !first && self.now().plus(cost) > deadline {
                return;
            }
            self.visit(since);
            first = false;
        }
    }

    /// Asks about the chunk at the front: about its beginning, if all of it would be too dear; and about those behind it
    /// not asked about since `since`, if they are cheap.
    fn visit(&mut self, since: Mono) {
        let begin = self.now();
        let Some(mut chunk) = self.queue.pop_front() else { return };
        let id = chunk.file;
        let file = &mut self.files[id];
        let by_age = file.most_by_age(&chunk, begin);
        let most = file.most_by_cost(&chunk).min(by_age);
        if chunk.length() > most {
            let rest = chunk.cut(most, &file.watched);
            file.unasked += usize::from(rest.asked.is_none());
            self.queue.push_front(rest);
        } else if chunk.asked.is_some() {
            while let Some(next) = self.queue.front()
                && next.file == id
                && next.asked.is_some_and(|asked| asked < since)
                && file.may_join(&chunk, next, by_age)
                && let Some(next) = self.queue.pop_front()
            {
                chunk.join(next);
            }
        }
        let (call, _) = file.choose(&chunk);
        let asked = (self.clock)();
        match file.ask(&chunk.pages, call) {
            Ok(Answer::Bytes(bytes)) => {
                let cost = (self.clock)().since(asked);
                let expected = (chunk.cachestat_ns, chunk.mincore_ns);
                file.learn(&mut chunk, call, cost);
                file.unasked -= usize::from(chunk.asked.is_none());
                if chunk.with_next
                    && let Some(next) = self.queue.front_mut()
                {
                    let theirs = (chunk.resident + next.resident).saturating_sub(bytes).min(next.bytes);
                    file.resident = file.resident - next.resident + theirs;
                    next.resident = theirs;
                    // So is their cost.
                    let (ours, theirs) = match call {
                        Call::Cachestat => (expected.0, &mut next.cachestat_ns),
                        Call::Mincore => (expected.1, &mut next.mincore_ns),
                    };
                    *theirs = theirs.zip(ours).map(|(theirs, ours)| (theirs + ours).saturating_sub(cost));
                }
                if !chunk.with_next && chunk.asked.is_some() && bytes > chunk.resident + GAIN {
                    file.gained = Some(asked);
                }
                file.resident = file.resident - chunk.resident + bytes;
                chunk.with_next = false;
                chunk.resident = bytes;
                chunk.asked = Some(asked);
                self.queue.push_back(chunk);
            }
            Ok(Answer::TooCoarse) => {
                let rest = chunk.cut(chunk.length() / 2, &file.watched);
                file.unasked += usize::from(rest.asked.is_none());
                self.queue.push_front(rest);
                self.queue.push_front(chunk);
            }
            Err(error) => {
                // The verdict was made with this call answering: either something changed, or it cannot be had.
                let mut verdict = decide(&mut *file.cache, &file.watched, Places::all(1));
                if verdict.same_calls(&file.verdict) {
                    verdict = Verdict::none(format!("{}: {error}", call.name()));
                }
                self.take(id, verdict);
            }
        }
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
        self.queue.front().and_then(|chunk| chunk.asked)
    }

    /// The same for each file.
    pub fn oldest_of_each(&self) -> Vec<Option<Mono>> {
        let mut oldest = vec![None; self.files.len()];
        let mut missing = self.files.len();
        for chunk in &self.queue {
            if oldest[chunk.file].is_none() {
                oldest[chunk.file] = Some(chunk.asked);
                missing -= 1;
                if missing == 0 {
                    break;
                }
            }
        }
        oldest.into_iter().map(Option::flatten).collect()
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
        self.queue.len()
    }

    /// Panics unless the books are in order: the chunks cover each file once, oldest first, and add up.
    pub fn check(&self) {
        assert!(self.queue.iter().zip(self.queue.iter().skip(1)).all(|(a, b)| a.asked <= b.asked));
        for (id, file) in self.files.iter().enumerate() {
            let mut chunks: Vec<_> = self.queue.iter().filter(|chunk| chunk.file == id).collect();
            assert_eq!(chunks.iter().map(|chunk| chunk.resident).sum::<u64>(), file.resident);
            assert_eq!(chunks.iter().filter(|chunk| chunk.asked.is_none()).count(), file.unasked);
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
