//! Records of several rings in the order of their times.
//!
//! Each ring is in order by itself, and a record may be seen a moment after its time. So what is older than the drain
//! before the last one is let go, and the rest is held back until the next.

use super::record::Stamped;
use crate::clock::Mono;

/// Holds records back until no earlier one can come.
#[derive(Debug, Default)]
pub struct Order {
    waiting: Vec<Stamped>,
}

impl Order {
    /// Takes a record in. Those of one ring come in its order.
    pub fn push(&mut self, record: Stamped) {
        self.waiting.push(record);
    }

    /// Lets go of everything from before `horizon`, in order; of records of one time, those that came first go first.
    pub fn release(&mut self, horizon: Mono) -> Vec<Stamped> {
        self.waiting.sort_by_key(|record| record.at);
        let count = self.waiting.partition_point(|record| record.at < horizon);
        let rest = self.waiting.split_off(count);
        std::mem::replace(&mut self.waiting, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::fault::record::Record;

    #[test]
    fn two_rings_become_one_order() {
        let record = |at, pid| Stamped { at: Mono(at), record: Record::Ended { pid } };
        let mut order = Order::default();
        // The first ring, then the second.
        [(10, 1), (30, 1), (30, 2), (50, 1)].into_iter().for_each(|(at, pid)| order.push(record(at, pid)));
        [(5, 9), (30, 9), (40, 9)].into_iter().for_each(|(at, pid)| order.push(record(at, pid)));
        let pids = |records: Vec<Stamped>| -> Vec<(u64, i32)> {
            records
                .into_iter()
                .map(|stamped| match stamped.record {
                    Record::Ended { pid } => (stamped.at.0, pid),
                    other => panic!("{other:?}"),
                })
                .collect()
        };
        assert_eq!(pids(order.release(Mono(40))), [(5, 9), (10, 1), (30, 1), (30, 2), (30, 9)]);
        order.push(record(45, 3));
        assert_eq!(pids(order.release(Mono(u64::MAX))), [(40, 9), (45, 3), (50, 1)]);
    }
}
