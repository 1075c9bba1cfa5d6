//! The largest resident set of a tree, as two bounds, from the high-water mark of each process image (VmHWM, proc(5)).
//!
//! # What is bounded, and from when to when
//!
//! The resident set of the tree is the sum over its processes, each with the image that it runs; an exec puts another
//! image in the place of the one before. A look that began at `b` and ended at `e` gives
//!
//! - a **low**: some time before `e` the sum was at least that. It is the largest of the sums that were sampled, and of
//!   the marks of single images, each less the counter's error ([`super::counter_error`]). The processes of one sum are
//!   read one after the other within a look;
//! - a **high**: at no time before `b` was the sum more than that. It is the sum over all processes that ever were of
//!   the largest mark of one of their images with the counter's error, or of its largest address space (VmPeak, which is
//!   exact) where that is less. The images of one process were never there together, and so the largest stands for all.
//!
//! What an image that lives on does after the look is not the look's to say: a high is for its own moment and for those
//! before it, and at a mark, whose look begins when the mark has been heard, it holds for all of start → mark.
//!
//! # When there is no high
//!
//! A mark is gone with its image: a zombie shows none. So a high is absent
//!
//! - once an image ended, by exit or exec, that no look has read at its end: what it grew to after its last reading is
//!   not known. A process that the profiler reaps itself leaves `ru_maxrss`, the largest mark of all its images and of
//!   the children that it waited for (getrusage(2)), and so is bounded again from its end on;
//! - once a process came and went unseen. Where the kernel's records are had, they tell of each
//!   ([`Tree::take_unmet_birth`]). Else, and where some were lost, one may have: a process shows in its account of
//!   waited-for children (`cminflt`, `cmajflt`) that one of them ended; one that ignores SIGCHLD shows nothing, and while
//!   one is there the high is lost once a process number was given out that was gone before anybody could look
//!   ([`Tree::unmet`]). Not told from others is one that has set SA_NOCLDWAIT without ignoring the signal;
//! - once a mark fell by more than the counter's error, which only an exec that nobody saw can do, or a reset
//!   (`/proc/PID/clear_refs`) by somebody else;
//! - in a look that could not read a process, or that had to leave new process numbers for the next.
//!
//! A child of vfork(2) that was caught before its exec shows its parent's memory, and counts as a process like any
//! other, as it does in `rss_bytes`.

use std::collections::HashMap;

use super::counter_error::CounterError;
use crate::launch::tree::ProcessKey;
#[cfg(doc)]
use crate::launch::tree::Tree;
use crate::proc::text::Memory;

/// What is known of one process's images.
#[derive(Debug)]
struct Life {
    label: String,
    /// The bound for the images before this one, and for this one before its mark was reset.
    earlier: u64,
    /// The largest mark read of the image that it runs.
    mark: u64,
    /// The mark as last read: it starts anew with an image.
    last: u64,
    /// The image's largest address space.
    space: u64,
    /// The most threads seen: what the counter may be off by, on older kernels.
    threads: u64,
    read: bool,
    /// It had ended before this stretch of time began.
    was_over: bool,
    is_over: bool,
    /// Why it has no bound: an image ended unread.
    open: Option<String>,
}

impl Life {
    fn high(&self, error: CounterError) -> u64 {
        self.earlier.max(self.mark.saturating_add(error.bytes(self.threads)).min(self.space))
    }

    /// The image is over, or its mark starts again.
    fn turn(&mut self, error: CounterError) {
        self.earlier = self.high(error);
        (self.mark, self.last, self.space) = (0, 0, 0);
    }
}

/// The bounds of one stretch of time, from when the value was made.
#[derive(Debug)]
pub struct HighWater {
    error: CounterError,
    lives: HashMap<ProcessKey, Life>,
    /// The bounds of those that are gone.
    departed: u64,
    low: u64,
    /// Why there is no high any more.
    lost: Option<String>,
    /// A departed process's `ru_maxrss` says something of this stretch only where it is more than this.
    floor: Option<u64>,
}

/// The stretches of time that marks are kept for: since start, and since the marks were last reset.
#[derive(Debug)]
pub struct Stretches {
    pub run: HighWater,
    /// Where they are reset.
    pub span: Option<HighWater>,
}

impl Stretches {
    /// Does the same to each.
    pub fn each(&mut self, mut act: impl FnMut(&mut HighWater)) {
        act(&mut self.run);
        self.span.iter_mut().for_each(act);
    }
}

/// The bounds after a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub low: Result<u64, String>,
    pub high: Result<u64, String>,
}

impl HighWater {
    /// `floor`: what the launch's first process had before its exec, which `ru_maxrss` still counts; `None` where
    /// `ru_maxrss` may be of another stretch altogether.
    pub fn new(error: CounterError, floor: Option<u64>) -> HighWater {
        HighWater { error, lives: HashMap::new(), departed: 0, low: 0, lost: None, floor }
    }

    /// A process is seen for the first time. `before`: why an image that it ran before went unread, where one may have.
    pub fn meet(&mut self, key: ProcessKey, label: &str, before: Option<String>) {
        self.lives.entry(key).or_insert_with(|| Life {
            label: label.to_owned(),
            earlier: 0,
            mark: 0,
            last: 0,
            space: 0,
            threads: 1,
            read: false,
            was_over: false,
            is_over: false,
            open: before,
        });
    }

    /// A process's memory as read now.
    pub fn read(&mut self, key: ProcessKey, memory: &Memory, threads: u64) {
        let Some(life) = self.lives.get_mut(&key) else { return };
        life.threads = life.threads.max(threads);
        let error = self.error.bytes(life.threads);
        if memory.peak_rss.saturating_add(error) < life.last && self.lost.is_none() {
            self.lost = Some(format!(
                "the high-water mark of {} fell: it was reset by another, or an exec went unseen",
                life.label
            ));
        }
        life.read = true;
        life.last = memory.peak_rss;
        life.mark = life.mark.max(memory.peak_rss);
        life.space = life.space.max(memory.peak_virtual);
        self.low = self.low.max(memory.peak_rss.saturating_sub(error));
    }

    /// Another image runs, and this one was not read at its end.
    pub fn exec(&mut self, key: ProcessKey) {
        let Some(life) = self.lives.get_mut(&key) else { return };
        life.turn(self.error);
        life.open.get_or_insert_with(|| {
            format!("{} changed its program between two looks, and the one before was not read at its end", life.label)
        });
    }

    /// It holds nothing any more, and was not read at its end.
    pub fn ended(&mut self, key: ProcessKey) {
        if let Some(life) = self.lives.get_mut(&key).filter(|life| !life.was_over) {
            life.is_over = true;
            life.open.get_or_insert_with(|| ended_unread(&life.label));
        }
    }

    /// It is gone. `max_rss`: its `ru_maxrss` in bytes, where the profiler reaped it itself.
    pub fn depart(&mut self, key: ProcessKey, max_rss: Option<u64>) {
        let life = self.lives.remove(&key);
        if life.as_ref().is_some_and(|life| life.was_over) {
            return;
        }
        let error = self.error.bytes(life.as_ref().map_or(1, |life| life.threads));
        match (max_rss, &life) {
            (Some(max_rss), _) => {
                let read = life.as_ref().map_or(0, |life| life.high(self.error));
                self.departed = self.departed.saturating_add(read.max(max_rss.saturating_add(error)));
                if self.floor.is_some_and(|floor| max_rss > floor.saturating_add(2 * error)) {
                    self.low = self.low.max(max_rss.saturating_sub(error));
                }
            }
            (None, Some(Life { open: Some(why), .. })) => self.lose(why.clone()),
            (None, Some(life)) => self.lose(ended_unread(&life.label)),
            (None, None) => self.lose(format!("process {} was born and gone between two looks", key.pid)),
        }
    }

    /// It is gone, if it is still counted as being there.
    pub fn forget(&mut self, key: ProcessKey) {
        if self.lives.contains_key(&key) {
            self.depart(key, None);
        }
    }

    /// There is no high any more, for this reason. The first one stays.
    pub fn lose(&mut self, why: String) {
        self.lost.get_or_insert(why);
    }

    /// The bounds now that every process was read. `sum`: the sum of their resident sets, or why it is not known.
    /// `behind`: why some may be lacking in this look.
    pub fn bounds(&mut self, sum: Result<u64, String>, behind: Option<&str>) -> Bounds {
        match sum {
            Ok(sum) => self.low = self.low.max(sum),
            Err(why) => return Bounds { low: Err(why.clone()), high: Err(why) },
        }
        Bounds { low: Ok(self.low), high: self.high(behind) }
    }

    fn high(&self, behind: Option<&str>) -> Result<u64, String> {
        if let Some(why) = &self.lost {
            return Err(why.clone());
        }
        // The one met first, so that a reason stays the same from look to look.
        let open = |life: &Life| match (&life.open, life.read) {
            (Some(why), _) => Some(why.clone()),
            (None, false) => Some(format!("{} has not been read yet", life.label)),
            (None, true) => None,
        };
        let mut opens: Vec<_> = self.lives.iter().filter_map(|(key, life)| Some((key, open(life)?))).collect();
        opens.sort_unstable_by_key(|(key, _)| (key.start_time, key.pid));
        if let Some((_, why)) = opens.into_iter().next() {
            return Err(why);
        }
        if let Some(why) = behind {
            return Err(why.to_owned());
        }
        Ok(self.lives.values().fold(self.departed, |sum, life| sum.saturating_add(life.high(self.error))))
    }

    /// A process's mark was read for the last time before it is reset.
    pub fn reset(&mut self, key: ProcessKey) {
        if let Some(life) = self.lives.get_mut(&key) {
            life.turn(self.error);
        }
    }

    /// A new stretch of time that begins now, with the processes that are there; each is to be read before it has a
    /// bound.
    pub fn renewed(&self) -> HighWater {
        let mut renewed = HighWater::new(self.error, None);
        for (key, life) in &self.lives {
            renewed.meet(*key, &life.label, None);
            if let Some(new) = renewed.lives.get_mut(key).filter(|_| life.is_over || life.was_over) {
                (new.was_over, new.read) = (true, true);
            }
        }
        renewed
    }
}

fn ended_unread(label: &str) -> String {
    format!("{label} ended between two looks, and was not read at its end")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 744 KiB for one image.
    const ERROR: u64 = 3 * 2 * 31 * 4096;
    const MIB: u64 = 1 << 20;

    fn key(pid: i32) -> ProcessKey {
        ProcessKey { pid, start_time: pid as u64 }
    }

    fn memory(rss: u64, peak_rss: u64) -> Memory {
        Memory { rss, peak_rss, peak_virtual: 1 << 40, ..Memory::default() }
    }

    fn with(pids: &[i32]) -> HighWater {
        let mut high_water = HighWater::new(CounterError::of("6.18", 2, 4096), Some(10 * MIB));
        pids.iter().for_each(|pid| high_water.meet(key(*pid), &format!("process {pid} (test)"), None));
        high_water
    }

    fn bounds(low: u64, high: u64) -> Bounds {
        Bounds { low: Ok(low), high: Ok(high) }
    }

    #[test]
    fn one_image_has_its_mark_and_the_error_on_both_sides() {
        let mut one = with(&[1]);
        one.read(key(1), &memory(20 * MIB, 512 * MIB), 1);
        let wanted = bounds(512 * MIB - ERROR, 512 * MIB + ERROR);
        assert_eq!(one.bounds(Ok(20 * MIB), None), wanted);
        // A mark may fall by some pages.
        one.read(key(1), &memory(20 * MIB, 512 * MIB - ERROR), 1);
        assert_eq!(one.bounds(Ok(20 * MIB), None), wanted);
        // The sum may be nearer than the mark less its error.
        assert_eq!(one.bounds(Ok(512 * MIB), None), bounds(512 * MIB, 512 * MIB + ERROR));
    }

    #[test]
    fn no_resident_set_is_larger_than_its_address_space() {
        let mut one = with(&[1]);
        one.read(key(1), &Memory { peak_virtual: 3 * MIB, ..memory(MIB, 2 * MIB + MIB / 2) }, 1);
        assert_eq!(one.bounds(Ok(MIB), None).high, Ok(3 * MIB));
    }

    #[test]
    fn two_images_at_once_are_between_the_larger_and_the_sum() {
        let mut two = with(&[1, 2]);
        two.read(key(1), &memory(10 * MIB, 300 * MIB), 1);
        two.read(key(2), &memory(10 * MIB, 200 * MIB), 1);
        assert_eq!(two.bounds(Ok(20 * MIB), None), bounds(300 * MIB - ERROR, 500 * MIB + 2 * ERROR));
        assert_eq!(two.bounds(Ok(350 * MIB), None), bounds(350 * MIB, 500 * MIB + 2 * ERROR));
    }

    #[test]
    fn an_exec_keeps_the_image_before_and_takes_the_high_away_until_the_end() {
        let mut one = with(&[1]);
        one.read(key(1), &memory(512 * MIB, 512 * MIB), 1);
        one.exec(key(1));
        one.read(key(1), &memory(2 * MIB, 2 * MIB), 1);
        let after = one.bounds(Ok(2 * MIB), None);
        assert_eq!(after.low, Ok(512 * MIB - ERROR));
        assert!(after.high.unwrap_err().contains("changed its program"));
        // The first image had grown after it was read.
        one.ended(key(1));
        one.depart(key(1), Some(600 * MIB));
        assert_eq!(one.bounds(Ok(0), None), bounds(600 * MIB - ERROR, 600 * MIB + ERROR));
    }

    #[test]
    fn an_image_that_died_unread_leaves_no_high() {
        let mut two = with(&[1, 2]);
        two.read(key(1), &memory(MIB, MIB), 1);
        two.read(key(2), &memory(8 * MIB, 8 * MIB), 1);
        two.depart(key(2), None);
        let after = two.bounds(Ok(MIB), None);
        assert_eq!(after.low, Ok(8 * MIB - ERROR));
        assert!(after.high.clone().unwrap_err().contains("process 2 (test) ended between two looks"));
        // What the first leaves says nothing of how many others there were.
        two.depart(key(1), Some(9 * MIB));
        assert_eq!(two.bounds(Ok(0), None).high, after.high);
    }

    #[test]
    fn one_that_no_look_saw_is_bounded_where_the_profiler_reaped_it() {
        let mut tree = with(&[1]);
        tree.read(key(1), &memory(5 * MIB, 5 * MIB), 1);
        tree.depart(key(7), Some(40 * MIB));
        assert_eq!(tree.bounds(Ok(5 * MIB), None), bounds(40 * MIB - ERROR, 45 * MIB + 2 * ERROR));
        tree.depart(key(8), None);
        assert!(tree.bounds(Ok(5 * MIB), None).high.unwrap_err().contains("born and gone"));
    }

    #[test]
    fn what_the_first_process_had_before_its_exec_is_no_low() {
        let mut one = with(&[1]);
        one.depart(key(1), Some(11 * MIB));
        assert_eq!(one.bounds(Ok(0), None), bounds(0, 11 * MIB + ERROR));
    }

    #[test]
    fn a_mark_that_fell_is_not_trusted() {
        let mut one = with(&[1]);
        one.read(key(1), &memory(100 * MIB, 100 * MIB), 1);
        one.read(key(1), &memory(MIB, MIB), 1);
        let after = one.bounds(Ok(MIB), None);
        assert_eq!(after.low, Ok(100 * MIB - ERROR));
        assert!(after.high.unwrap_err().contains("fell"));
    }

    #[test]
    fn a_look_that_lacks_something_gives_nothing_and_the_next_one_all() {
        let mut one = with(&[1]);
        assert!(one.bounds(Ok(0), None).high.unwrap_err().contains("not been read yet"));
        one.read(key(1), &memory(MIB, 3 * MIB), 1);
        assert_eq!(
            one.bounds(Err("denied".into()), None),
            Bounds { low: Err("denied".into()), high: Err("denied".into()) }
        );
        assert_eq!(one.bounds(Ok(MIB), Some("behind")).high, Err("behind".into()));
        assert_eq!(one.bounds(Ok(MIB), None), bounds(3 * MIB - ERROR, 3 * MIB + ERROR));
    }

    #[test]
    fn a_reset_keeps_what_was_and_begins_a_stretch_of_its_own() {
        let mut run = with(&[1]);
        run.read(key(1), &memory(MIB, 100 * MIB), 1);
        let mut span = run.renewed();
        run.reset(key(1));
        for stretch in [&mut run, &mut span] {
            stretch.read(key(1), &memory(4 * MIB, 40 * MIB), 1);
        }
        assert_eq!(run.bounds(Ok(4 * MIB), None), bounds(100 * MIB - ERROR, 100 * MIB + ERROR));
        assert_eq!(span.bounds(Ok(4 * MIB), None), bounds(40 * MIB - ERROR, 40 * MIB + ERROR));
        // ru_maxrss, too, was lowered by the reset; and it may be of the stretch before.
        run.depart(key(1), Some(60 * MIB));
        span.depart(key(1), Some(60 * MIB));
        assert_eq!(run.bounds(Ok(0), None), bounds(100 * MIB - ERROR, 100 * MIB + ERROR));
        assert_eq!(span.bounds(Ok(0), None), bounds(40 * MIB - ERROR, 60 * MIB + ERROR));
    }

    #[test]
    fn what_ended_before_a_stretch_is_not_of_it() {
        let mut run = with(&[1, 2]);
        run.read(key(1), &memory(MIB, 100 * MIB), 1);
        run.read(key(2), &memory(MIB, 100 * MIB), 1);
        run.ended(key(2));
        let mut span = run.renewed();
        span.read(key(1), &memory(MIB, 4 * MIB), 1);
        span.ended(key(2));
        assert_eq!(span.bounds(Ok(MIB), None), bounds(4 * MIB - ERROR, 4 * MIB + ERROR));
        span.depart(key(2), None);
        assert_eq!(span.bounds(Ok(MIB), None), bounds(4 * MIB - ERROR, 4 * MIB + ERROR));
    }
}
