//! The calling thread among others.

/// Lets every other thread that wants a processor go first: nice 19 for the calling thread alone (setpriority(2): on
/// Linux the nice value is a thread's own). Where it is refused, the thread goes on as it was.
pub fn give_way() {
    // SAFETY: takes its arguments by value; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::proc::stat;

    /// Field 19 of proc_pid_stat(5).
    fn nice(path: &str) -> i64 {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(stat::Stat::parse(text.as_bytes()).is_some());
        let (_, rest) = text.rsplit_once(')').unwrap();
        rest.split_ascii_whitespace().nth(19 - 3).unwrap().parse().unwrap()
    }

    #[test]
    fn one_thread_gives_way_and_the_others_do_not() {
        let before = nice("/proc/thread-self/stat");
        let there = std::thread::spawn(|| {
            give_way();
            nice("/proc/thread-self/stat")
        });
        assert_eq!(there.join().unwrap(), 19);
        assert_eq!(nice("/proc/thread-self/stat"), before);
    }
}
