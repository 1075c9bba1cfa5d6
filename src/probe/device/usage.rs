//! Whether a launch used any device at all, from every reading together. Pure.
//!
//! It did where a driver's list or the kernel's files name a process of it. It did not where
//!
//! - at least one reading of who has memory was made while the launch ran, and none of them left anything untold;
//! - none named a process of the launch, on any device;
//! - no device that it may use ever had more than [`GROWTH`] in use above what it had before the exec.
//!
//! Everything else is not known. What is taken and given back between two readings is in none of them: how far apart they
//! were is said.

use crate::clock::Mono;
use crate::event::Pid;
use crate::units;

/// So much more may be in use on a device without anybody having taken it: contexts of the driver's own.
pub const GROWTH: u64 = super::share::UNNAMED;

/// What all readings show together.
#[derive(Debug, Default)]
pub struct Usage {
    used: bool,
    /// What was not told, first.
    untold: Option<String>,
    /// The largest rise, and where.
    most: Option<(u64, String)>,
    /// Readings of who has memory, made while a process of the launch was there.
    readings: u64,
    last: Option<Mono>,
    longest_gap_ns: u64,
    /// Of the reading that is being taken in: whether each device that counts was asked whose its memory is.
    is_whole: bool,
}

impl Usage {
    /// Another reading begins.
    pub fn begin(&mut self) {
        self.is_whole = true;
    }

    /// One device of it: whose its memory is, where that was asked, and how much more is in use than before the exec.
    pub fn device(
        &mut self,
        label: &str,
        is_counted: bool,
        named: &Option<Result<Vec<(Pid, u64)>, String>>,
        rise: &Result<u64, String>,
    ) {
        if let Some(Ok(shares)) = named {
            self.used |= shares.iter().any(|(_, bytes)| *bytes > 0);
        }
        if !is_counted {
            return;
        }
        let mut untold = |why: &String| {
            self.untold.get_or_insert_with(|| format!("{label}: {why}"));
        };
        match named {
            None => self.is_whole = false,
            Some(Err(why)) => untold(why),
            Some(Ok(_)) => {}
        }
        match rise {
            Err(why) => untold(why),
            Ok(rise) if self.most.as_ref().is_none_or(|(most, _)| rise > most) => {
                self.most = Some((*rise, label.to_owned()));
            }
            Ok(_) => {}
        }
    }

    /// Something of the launch had memory at some time.
    pub fn was_used(&mut self) {
        self.used = true;
    }

    /// The reading, which was begun at `began`, is over. Before and after the launch it says nothing.
    pub fn end(&mut self, is_running: bool, began: Mono) {
        if !self.is_whole || !is_running {
            return;
        }
        self.readings += 1;
        if let Some(last) = self.last.replace(began) {
            self.longest_gap_ns = self.longest_gap_ns.max(began.since(last));
        }
    }

    /// Whether the launch used a device, and why that is known or not.
    pub fn verdict(&self) -> (Option<bool>, String) {
        if self.used {
            return (Some(true), "a process of the launch had device memory".to_owned());
        }
        if let Some((rise, label)) = self.most.as_ref().filter(|(rise, _)| *rise > GROWTH) {
            return match &self.untold {
                // Whoever took it: it is what the launch's share is known by there.
                Some(_) => (Some(true), format!("{label} had {rise} bytes more in use than before the start")),
                None => (
                    None,
                    format!(
                        "whether the launch used a device is not known: no process of it was named, but {label} had \
                         {rise} bytes more in use than before the start"
                    ),
                ),
            };
        }
        if let Some(why) = &self.untold {
            return (None, format!("whether the launch used a device is not known: {why}"));
        }
        if self.readings == 0 {
            let why = "nobody was asked who has device memory while it ran";
            return (None, format!("whether the launch used a device is not known: {why}"));
        }
        let gap = match self.longest_gap_ns {
            0 => String::new(),
            gap => format!(" (the longest time between two: {} ms)", gap.div_ceil(1_000_000)),
        };
        let of_devices = format!(
            "the launch used no device: in {} readings{gap} no process of it had device memory, and no device that it may \
             use had more than {} in use above what it had before the start",
            self.readings,
            units::bytes(GROWTH)
        );
        (Some(false), of_devices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Named = Option<Result<Vec<(Pid, u64)>, String>>;

    fn verdict(readings: &[(Named, Result<u64, String>)], is_running: bool) -> (Option<bool>, String) {
        let mut usage = Usage::default();
        for (nth, (named, rise)) in readings.iter().enumerate() {
            usage.begin();
            usage.device("device 0", true, named, rise);
            usage.end(is_running, Mono(1_000_000_000 * nth as u64));
        }
        usage.verdict()
    }

    const NOBODY: Named = Some(Ok(Vec::new()));

    #[test]
    fn unused_is_said_only_where_everything_was_told_and_nothing_grew() {
        let (used, why) = verdict(&[(NOBODY, Ok(0)), (None, Ok(GROWTH)), (NOBODY, Ok(5))], true);
        assert_eq!(used, Some(false));
        assert!(why.contains("in 2 readings") && why.contains("64 MiB in use") && why.contains("2000 ms"), "{why}");
        assert_eq!(verdict(&[(NOBODY, Ok(0))], false).0, None, "nobody was there");
        assert_eq!(verdict(&[(None, Ok(0))], true).0, None, "nobody was asked");
        assert_eq!(verdict(&[], true).0, None);
        let (used, why) = verdict(&[(NOBODY, Ok(0)), (NOBODY, Ok(GROWTH + 1))], true);
        assert!(used.is_none() && why.contains("no process of it was named"), "{why}");
        let (used, why) = verdict(&[(NOBODY, Ok(0)), (Some(Err("denied".into())), Ok(0))], true);
        assert!(used.is_none() && why.contains("device 0: denied"), "{why}");
        assert_eq!(verdict(&[(NOBODY, Err("no baseline".into()))], true).0, None);
    }

    #[test]
    fn used_is_what_was_named_or_what_rose_where_nobody_can_be() {
        assert_eq!(verdict(&[(Some(Ok(vec![(7, 1)])), Ok(0)), (NOBODY, Ok(0))], true).0, Some(true));
        assert_eq!(verdict(&[(Some(Err("hidden".into())), Ok(GROWTH + 1))], true).0, Some(true));
        let mut usage = Usage::default();
        usage.begin();
        usage.device("device 1", false, &Some(Ok(vec![(7, 1)])), &Err("x".into()));
        assert_eq!(usage.verdict().0, Some(true), "on one that does not count");
    }
}
