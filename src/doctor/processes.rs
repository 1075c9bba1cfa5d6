//! What `/proc` shows of the launch's processes: tried on this very process, whose rights towards itself are those
//! towards a launch of the same user; and on another user's process, where one is to be seen.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::who::{Capability, Who};
use super::{Finding, Refusal};
use crate::host::Mounts;
use crate::sys::cache::page_size;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    /// The `hidepid` option of `/proc`, where it has one other than `off`.
    pub hidepid: Option<String>,
    /// `/proc/self/stat`, `status` with a VmHWM line, `smaps_rollup`, the page tables, by which call.
    pub stat: Result<(), Refusal>,
    pub high_water: Result<(), Refusal>,
    pub rollup: Result<(), Refusal>,
    pub pagemap: Result<&'static str, Refusal>,
    /// Writing to `/proc/self/clear_refs`.
    pub reset: Result<(), Refusal>,
    /// `io` of a process of another user's; absent where there is none to be seen.
    pub others: Option<Result<(), Refusal>>,
}

impl Tried {
    pub fn here() -> Tried {
        let mounts = Mounts::read(Path::new("/proc"));
        Tried {
            hidepid: mounts.of_resolved(Path::new("/proc")).and_then(|mount| hidepid(&mount.super_options)),
            stat: read("/proc/self/stat").map(drop),
            high_water: read("/proc/self/status").and_then(|status| has(&status, "VmHWM:")),
            rollup: read("/proc/self/smaps_rollup").and_then(|text| has(&text, "Pss:")),
            pagemap: pagemap(),
            reset: OpenOptions::new()
                .write(true)
                .open("/proc/self/clear_refs")
                .and_then(|mut file| file.write_all(b"5"))
                .map_err(Refusal::from),
            others: another_users().map(|pid| read(&format!("/proc/{pid}/io")).map(drop)),
        }
    }

    /// Whether the page tables of a launch of the same user can be read.
    pub fn page_tables(&self) -> bool {
        self.pagemap.is_ok()
    }

    pub fn findings(&self, who: &Who) -> Vec<Finding> {
        let own = |item, figure, source: &str, tried: &Result<(), Refusal>| match tried {
            Ok(()) => Finding::yes(item, figure, source),
            Err(refusal) if !who.proc => {
                Finding::no(item, figure).because(format!("{source}: {}", refusal.text)).remedied_by([no_proc(who)])
            }
            Err(refusal) => Finding::no(item, figure).because(format!("{source}: {}", refusal.text)),
        };
        vec![
            self.tree(who),
            own("high_water", "peak of a process (VmHWM)", "/proc/PID/status", &self.high_water),
            own("reset_peaks", "peaks reset (--reset-peaks)", "/proc/PID/clear_refs", &self.reset),
            own("pss", "shared memory once (PSS)", "/proc/PID/smaps_rollup", &self.rollup),
            own(
                "page_tables",
                "page tables, a lower bound",
                self.pagemap.as_ref().map_or("/proc/PID/pagemap", |by| by),
                &self.pagemap.clone().map(drop),
            ),
            self.others(who),
        ]
    }

    fn tree(&self, who: &Who) -> Finding {
        let (item, figure) = ("tree", "the tree of processes");
        match (&self.stat, &self.hidepid) {
            (Err(refusal), _) => Finding::no(item, figure)
                .because(format!("/proc/PID/stat: {}", refusal.text))
                .remedied_by([no_proc(who)]),
            (Ok(()), Some(option)) if !who.has_on_host(Capability::SysPtrace) => {
                Finding::bounded(item, figure, "/proc/PID/stat")
                    .because(format!(
                        "/proc is mounted with hidepid={option}: children that become another user vanish"
                    ))
                    .remedied_by([
                        who.as_host_root("mount -o remount,hidepid=0 /proc"),
                        "a group of yours in the mount option gid=".into(),
                    ])
            }
            (Ok(()), _) => Finding::yes(item, figure, "/proc/PID/stat"),
        }
    }

    fn others(&self, who: &Who) -> Finding {
        let (item, figure) = ("others_processes", "processes of other users");
        let reason = "of a launch's child that becomes another user, counters and peaks only: no I/O, mappings or PSS";
        let remedies = ["run as that user, or with CAP_SYS_PTRACE"];
        match &self.others {
            Some(Ok(())) => Finding::yes(item, figure, "/proc/PID/io, maps"),
            Some(Err(refusal)) => Finding::bounded(item, figure, "/proc/PID/stat, status")
                .because(format!("{reason} ({})", refusal.text))
                .remedied_by(remedies),
            None if who.has_on_host(Capability::SysPtrace) => {
                Finding::yes(item, figure, "/proc/PID/io, maps").because("by CAP_SYS_PTRACE; none is here to try with")
            }
            None => Finding::bounded(item, figure, "/proc/PID/stat, status")
                .because(format!("{reason} (none is to be seen here to try with)"))
                .remedied_by(remedies),
        }
    }
}

fn no_proc(who: &Who) -> String {
    who.as_host_root("mount -t proc proc /proc")
}

/// The option's value where it hides anything (proc(5)): `1` and `noaccess`, `2` and `invisible`, `4` and
/// `ptraceable`.
fn hidepid(options: &str) -> Option<String> {
    let value = options.split(',').find_map(|option| option.strip_prefix("hidepid="))?;
    (!matches!(value, "0" | "off")).then(|| value.to_owned())
}

fn read(path: &str) -> Result<String, Refusal> {
    let mut text = String::new();
    File::open(path)?.take(1 << 16).read_to_string(&mut text)?;
    Ok(text)
}

fn has(text: &str, field: &str) -> Result<(), Refusal> {
    let found = text.lines().any(|line| line.starts_with(field));
    found.then_some(()).ok_or_else(|| Refusal { errno: None, text: format!("has no {field} line") })
}

/// Asks about a page of our own binary that is in use, as the page-table probe asks; says which call answered.
fn pagemap() -> Result<&'static str, Refusal> {
    let page = page_size();
    let address = pagemap as fn() -> Result<&'static str, Refusal> as usize as u64 / page * page;
    let pagemap = File::open("/proc/self/pagemap")?;
    let mut found = Vec::with_capacity(4);
    let by = match crate::sys::pagemap::scan(&pagemap, address..address + page, &mut found) {
        Ok(_) => "PAGEMAP_SCAN",
        Err(_) => {
            crate::sys::pagemap::read(&pagemap, address..address + page, page, &mut found)?;
            "/proc/PID/pagemap"
        }
    };
    let seen = !found.is_empty();
    seen.then_some(by).ok_or_else(|| Refusal { errno: None, text: "says of a page in use that it is not there".into() })
}

/// A process whose owner is not this user.
fn another_users() -> Option<u32> {
    let own = nix::unistd::geteuid().as_raw();
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        (entry.metadata().ok()?.uid() != own).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_hides_is_told() {
        assert_eq!(hidepid("rw,hidepid=invisible,gid=5"), Some("invisible".into()));
        assert_eq!(hidepid("rw,hidepid=2"), Some("2".into()));
        assert_eq!(hidepid("rw,hidepid=0"), None);
        assert_eq!(hidepid("rw"), None);
    }

    #[test]
    fn this_process_shows_itself() {
        let tried = Tried::here();
        assert_eq!(tried.stat, Ok(()));
        assert_eq!(tried.high_water, Ok(()));
        assert!(tried.pagemap.is_ok(), "{:?}", tried.pagemap);
    }
}
