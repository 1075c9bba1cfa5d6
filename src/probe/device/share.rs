//! What of a device's memory is the launch's: by the driver's list of processes where its numbers can be told, and by
//! how much more is in use than before the exec where they cannot. Pure.
//!
//! A driver numbers processes as the host's first pid namespace does, or as the asker's; in a container it may name
//! numbers that mean nothing there, name nobody, or name the right ones with 0 bytes. A number that means nothing here
//! and was not in the list before the exec may be the launch's: then nobody's share can be told.

use std::collections::{HashMap, HashSet};

use crate::event::Pid;

/// A process in a driver's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// As the driver numbers it.
    pub pid: u32,
    /// `None` where the driver withholds it.
    pub bytes: Option<u64>,
}

/// Less than this may be in use without a process to name: contexts of the driver itself.
pub const UNNAMED: u64 = 64 << 20;

/// Who is who among the processes.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The processes of the launch, by the numbers that this `/proc` has for them.
    pub members: HashSet<Pid>,
    /// Numbers that they have in namespaces below (status, NSpid), each with the process that has it; a number that two
    /// have is of none.
    pub aliases: HashMap<Pid, Option<Pid>>,
    /// Those that were of the launch and have ended: a driver may name them a little longer.
    pub ended: HashSet<Pid>,
}

impl Known {
    /// Takes in a process of the launch with its NSpid, outermost first.
    pub fn add(&mut self, pid: Pid, namespaces: &[Pid]) {
        self.members.insert(pid);
        for inner in namespaces.iter().skip(1) {
            self.aliases
                .entry(*inner)
                .and_modify(|owner| *owner = owner.filter(|owner| *owner == pid))
                .or_insert(Some(pid));
        }
    }

    /// The process of the launch that a number of the driver's list is; `exists` says whether `/proc` has that number.
    fn owner(&self, listed: u32, exists: &impl Fn(Pid) -> bool) -> Owner {
        let Ok(pid) = Pid::try_from(listed) else { return Owner::Unknown };
        if self.members.contains(&pid) {
            return Owner::Member(pid);
        }
        if exists(pid) || self.ended.contains(&pid) {
            return Owner::Other;
        }
        match self.aliases.get(&pid) {
            Some(Some(member)) => Owner::Member(*member),
            Some(None) | None => Owner::Unknown,
        }
    }
}

enum Owner {
    Member(Pid),
    Other,
    Unknown,
}

/// The launch's share of one device by the driver's list: each process's bytes. `before` are the numbers in the list
/// before the exec, `rise` how much more is in use than then.
///
/// # Errors
///
/// Why the owner cannot be told.
pub fn by_processes(
    listed: &[Listed],
    before: &HashSet<u32>,
    rise: Option<u64>,
    known: &Known,
    exists: impl Fn(Pid) -> bool,
) -> Result<Vec<(Pid, u64)>, String> {
    let is_much = rise.is_some_and(|rise| rise > UNNAMED);
    let mut shares: Vec<(Pid, u64)> = Vec::new();
    for Listed { pid, bytes } in listed {
        match known.owner(*pid, &exists) {
            Owner::Other => {}
            // Not of a launch that had not begun.
            Owner::Unknown if before.contains(pid) => {}
            Owner::Unknown => {
                return Err(format!(
                    "the driver names process {pid}, which is none of this pid namespace: its owner cannot be told"
                ));
            }
            Owner::Member(member) => match bytes {
                None => return Err(format!("the driver withholds how much process {member} has")),
                Some(0) if is_much => {
                    return Err(format!("the driver says 0 bytes for process {member}, as it does in containers"));
                }
                Some(bytes) => match shares.iter_mut().find(|(pid, _)| *pid == member) {
                    // One that computes and draws stands in both lists with all that it has.
                    Some((_, known)) => *known = (*known).max(*bytes),
                    None => shares.push((member, *bytes)),
                },
            },
        }
    }
    if listed.is_empty() && is_much {
        return Err("more is in use than before the exec, and the driver names no process".to_owned());
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: fn(Pid) -> bool = |_| false;

    fn known() -> Known {
        let mut known = Known { ended: HashSet::from([999]), ..Known::default() };
        known.add(100, &[100]);
        known.add(101, &[101, 7]);
        known.add(102, &[102, 8]);
        known.add(103, &[103, 8]);
        known
    }

    fn shares(all: &[(u32, u64)]) -> Result<Vec<(Pid, u64)>, String> {
        let listed: Vec<Listed> = all.iter().map(|&(pid, bytes)| Listed { pid, bytes: Some(bytes) }).collect();
        by_processes(&listed, &HashSet::from([50]), Some(1 << 30), &known(), |pid| pid == 60)
    }

    #[test]
    fn members_are_summed_and_others_left_out() {
        assert_eq!(shares(&[(100, 5), (101, 7), (60, 9), (999, 3), (50, 9)]), Ok(vec![(100, 5), (101, 7)]));
        assert_eq!(shares(&[(100, 5), (100, 8)]), Ok(vec![(100, 8)]), "in both lists");
        assert_eq!(shares(&[(7, 5)]), Ok(vec![(101, 5)]), "by its number within");
        assert_eq!(shares(&[(60, 9)]), Ok(vec![]));
    }

    #[test]
    fn a_number_that_means_nothing_here_leaves_nothing_to_tell() {
        assert!(shares(&[(100, 5), (998, 3)]).unwrap_err().contains("998"));
        assert!(shares(&[(8, 3)]).is_err(), "two have it");
        assert!(shares(&[(u32::MAX, 3)]).is_err());
        assert!(shares(&[(100, 0)]).unwrap_err().contains("0 bytes"));
        assert!(shares(&[]).unwrap_err().contains("names no process"));
        let little = by_processes(&[], &HashSet::new(), Some(1 << 20), &known(), NONE);
        assert_eq!(little, Ok(vec![]), "nothing to speak of is in use");
    }

    #[test]
    fn what_is_withheld_is_not_nothing() {
        let withheld = [Listed { pid: 100, bytes: None }];
        assert!(by_processes(&withheld, &HashSet::new(), None, &known(), NONE).is_err());
    }
}
