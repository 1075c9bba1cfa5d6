//! The resource limits that this process has and the command inherits (getrlimit(2)), read from `/proc/self/limits`.

use std::fmt;
use std::path::Path;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use serde::{Deserialize, Serialize};

use super::look;

/// A limit's value: a number in the resource's own unit, or none at all. `"unlimited"` in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ceiling {
    At(u64),
    Unlimited,
}

impl fmt::Display for Ceiling {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ceiling::At(value) => value.fmt(formatter),
            Ceiling::Unlimited => formatter.write_str("unlimited"),
        }
    }
}

impl Serialize for Ceiling {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Ceiling::At(value) => serializer.serialize_u64(*value),
            Ceiling::Unlimited => serializer.serialize_str("unlimited"),
        }
    }
}

impl<'de> Deserialize<'de> for Ceiling {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Word(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(value) => Ok(Ceiling::At(value)),
            Form::Word(word) if word == "unlimited" => Ok(Ceiling::Unlimited),
            Form::Word(word) => Err(serde::de::Error::custom(format!("`{word}` is no limit"))),
        }
    }
}

/// Soft and hard limit of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limit {
    pub soft: Option<Ceiling>,
    pub hard: Option<Ceiling>,
}

/// The limits that can change how a model loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Open files: one a shard and more.
    pub nofile: Limit,
    /// Locked memory in bytes: `--mlock`, pinned host memory, perf's rings.
    pub memlock: Limit,
    /// Address space in bytes.
    #[serde(rename = "as")]
    pub address_space: Limit,
    /// Data segment in bytes, private writable mappings included.
    pub data: Limit,
    /// Stack in bytes.
    pub stack: Limit,
    /// Processes and threads of the user.
    pub nproc: Limit,
    /// Core file in bytes: dumping a loaded model takes its time.
    pub core: Limit,
}

impl Limits {
    /// This process's limits, as `proc_root` (`/proc`) shows them.
    pub fn read(proc_root: &Path) -> Limits {
        look::text(&proc_root.join("self/limits"), look::SMALL_CAP).map_or_else(Limits::default, |text| parse(&text))
    }
}

fn parse(text: &str) -> Limits {
    let limit = |name: &str| {
        let values = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let mut values = values.split_whitespace().map(|value| match value {
            "unlimited" => Some(Ceiling::Unlimited),
            number => number.parse().ok().map(Ceiling::At),
        });
        Limit { soft: values.next().flatten(), hard: values.next().flatten() }
    };
    Limits {
        nofile: limit("Max open files"),
        memlock: limit("Max locked memory"),
        address_space: limit("Max address space"),
        data: limit("Max data size"),
        stack: limit("Max stack size"),
        nproc: limit("Max processes"),
        core: limit("Max core file size"),
    }
}

/// Which limit of this process an error may be owed to, and what to do about it; empty where it is none's.
pub fn limit_behind(error: &std::io::Error) -> String {
    let files = (Resource::RLIMIT_NOFILE, "open files (RLIMIT_NOFILE)", "ulimit -n 1024");
    let space = (Resource::RLIMIT_AS, "address space (RLIMIT_AS)", "ulimit -v unlimited");
    let tasks = (Resource::RLIMIT_NPROC, "processes and threads (RLIMIT_NPROC)", "ulimit -u 4096");
    let limits = match error.raw_os_error() {
        Some(libc::EMFILE) => vec![files],
        Some(libc::ENOMEM) => vec![space],
        // A thread whose stack finds no room is refused so too (pthread_create(3)).
        Some(libc::EAGAIN) => vec![space, tasks],
        _ => return String::new(),
    };
    let named = limits.into_iter().find_map(|(resource, name, remedy)| {
        let (soft, _) = getrlimit(resource).ok().filter(|(soft, _)| *soft != RLIM_INFINITY)?;
        Some(format!(": the limit of {name} is {soft}; raise it: {remedy}"))
    });
    named.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_behind_an_error_is_named_with_a_remedy() {
        let said = limit_behind(&std::io::Error::from_raw_os_error(libc::EMFILE));
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert!(soft == RLIM_INFINITY || said.contains(&format!("(RLIMIT_NOFILE) is {soft}; raise it")), "{said}");
        assert_eq!(limit_behind(&std::io::Error::from_raw_os_error(libc::ENOENT)), "");
    }
    use crate::host::tests::recorded;

    #[test]
    fn the_recorded_table_is_read() {
        let limits = Limits::read(&recorded("v1-host").proc);
        let at = |soft, hard| Limit { soft: Some(soft), hard: Some(hard) };
        assert_eq!(limits.nofile, at(Ceiling::At(20_000), Ceiling::At(20_000)));
        assert_eq!(limits.memlock, at(Ceiling::At(8_388_608), Ceiling::At(8_388_608)));
        assert_eq!(limits.address_space, at(Ceiling::Unlimited, Ceiling::Unlimited));
        assert_eq!(limits.data, at(Ceiling::Unlimited, Ceiling::Unlimited));
        assert_eq!(limits.stack, at(Ceiling::At(8_388_608), Ceiling::Unlimited));
        assert_eq!(limits.nproc, at(Ceiling::At(96_365), Ceiling::At(96_365)));
        assert_eq!(limits.core, at(Ceiling::At(0), Ceiling::Unlimited));
    }

    #[test]
    fn a_table_that_is_none_gives_nothing() {
        assert_eq!(parse("Max open files            many\n"), Limits::default());
        assert_eq!(parse(""), Limits::default());
    }

    #[test]
    fn a_ceiling_has_its_form_in_files() {
        let text = serde_json::to_string(&[Ceiling::At(5), Ceiling::Unlimited]).unwrap();
        assert_eq!(text, r#"[5,"unlimited"]"#);
        assert_eq!(serde_json::from_str::<Vec<Ceiling>>(&text).unwrap(), [Ceiling::At(5), Ceiling::Unlimited]);
        assert!(serde_json::from_str::<Ceiling>(r#""much""#).is_err());
    }
}
