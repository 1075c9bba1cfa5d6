//! The words, from recorded trials.

use super::*;
use crate::host::limits::Ceiling;
use crate::probe::residency::Trust;

fn refused(errno: i32) -> Refusal {
    std::io::Error::from_raw_os_error(errno).into()
}

fn trust(by: &str, because: &str) -> Result<Trust, String> {
    Ok(Trust { by: by.into(), because: because.into() })
}

/// A device of which all is known.
fn device() -> crate::probe::device::Device {
    serde_json::from_value(serde_json::json!({
        "uuid": "GPU-1", "name": "H200", "vendor": "nvidia", "source": "nvml", "driver": null, "pci": null,
        "total_bytes": 137_438_953_472_u64, "is_unified": false, "parent": null, "instance": null, "is_divided": false,
        "baseline_bytes": 0,
    }))
    .unwrap()
}

fn root() -> Who {
    Who {
        kernel: "6.18.44".into(),
        capabilities: 0x1ff_ffff_ffff,
        perf_event_paranoid: Some(2),
        proc: true,
        ..Who::default()
    }
}

fn user() -> Who {
    Who { uid: 1000, capabilities: 0, ..root() }
}

/// A host on which everything may be had.
fn everything() -> Tried {
    Tried {
        perf: perf::Tried {
            stream: Ok(()),
            faults: Ok(()),
            user_faults: Ok(()),
            fault_count: Ok(()),
            task_clock: Ok(()),
        },
        residency: residency::Tried { own: trust("cachestat", "both"), others: None },
        processes: processes::Tried {
            hidepid: None,
            stat: Ok(()),
            high_water: Ok(()),
            rollup: Ok(()),
            pagemap: Ok("PAGEMAP_SCAN"),
            reset: Ok(()),
            others: Some(Ok(())),
        },
        accounts: accounts::Tried {
            io: Ok(()),
            schedstat: Ok("1 2 3\n".into()),
            delay_accounting: Ok(true),
            pressure: Ok(()),
            group_pressure: Ok(()),
            storage: Some(Ok(())),
            swap: Some(1 << 30),
        },
        groups: groups::Tried {
            version: Some(2),
            group: Some("/sys/fs/cgroup/user.slice".into()),
            readable: true,
            made: Some(Ok(groups::Made { peak: true, movable: true })),
        },
        limits: limits::Tried {
            cpus: Some(72),
            quota: None,
            descriptors: Some(Ceiling::At(1024)),
            locked: Some(Ceiling::At(8 << 20)),
            available: true,
            evicts: Vec::new(),
            notify: Ok(()),
            devices: Ok((vec![device()], Vec::new())),
        },
    }
}

/// An ordinary user in a container whose filter denies perf, on a kernel with little switched on.
fn little() -> Tried {
    let denied = || Err(perf::Refused::Open(refused(libc::EPERM)));
    Tried {
        perf: perf::Tried {
            stream: denied(),
            faults: denied(),
            user_faults: denied(),
            fault_count: Err("perf_event_open: Operation not permitted (os error 1)".into()),
            task_clock: Err("perf_event_open: Operation not permitted (os error 1)".into()),
        },
        residency: residency::Tried {
            own: trust("cachestat", "both"),
            others: Some((
                "/bin/sh".into(),
                trust("none", "mincore withholds its answer; cachestat: not permitted (EPERM)"),
            )),
        },
        processes: processes::Tried {
            hidepid: Some("2".into()),
            rollup: Err(refused(libc::ENOENT)),
            pagemap: Err(refused(libc::EPERM)),
            reset: Err(refused(libc::EACCES)),
            others: None,
            ..everything().processes
        },
        accounts: accounts::Tried {
            io: Ok(()),
            schedstat: Ok("0 0 0\n".into()),
            delay_accounting: Ok(false),
            pressure: Err(refused(libc::EOPNOTSUPP)),
            group_pressure: Err((None, "the launch's control group is of version 1, which has no pressure".into())),
            storage: None,
            swap: Some(0),
        },
        groups: groups::Tried {
            version: Some(2),
            group: Some("/sys/fs/cgroup".into()),
            readable: true,
            made: Some(Err(refused(libc::EROFS))),
        },
        limits: limits::Tried {
            cpus: Some(1),
            quota: Some("0.50".into()),
            descriptors: Some(Ceiling::At(64)),
            locked: Some(Ceiling::At(0)),
            available: true,
            evicts: vec!["kdamond 0: paddr pageout".into()],
            notify: Err(refused(libc::EACCES)),
            devices: Ok((Vec::new(), vec!["NVML: libnvidia-ml.so.1: cannot open shared object file".into()])),
        },
    }
}

fn find(tried: &Tried, who: &Who, item: &str) -> Finding {
    tried.sections(who).into_iter().flat_map(|(_, findings)| findings).find(|finding| finding.item == item).unwrap()
}

fn remedies(tried: &Tried, who: &Who, item: &str) -> String {
    find(tried, who, item).remedies.join("\n")
}

#[test]
fn where_everything_may_be_had_nothing_is_missing() {
    for (_, findings) in everything().sections(&root()) {
        for finding in findings {
            assert_eq!(finding.state, State::Yes, "{finding:?}");
            assert!(finding.remedies.is_empty(), "{finding:?}");
        }
    }
}

/// Names for machines are a contract; add, never rename.
#[test]
fn names_are_unique_and_stay() {
    let names: Vec<&str> =
        everything().sections(&root()).iter().flat_map(|(_, findings)| findings.iter().map(|f| f.item)).collect();
    assert_eq!(
        names,
        [
            "event_stream",
            "fault_samples",
            "fault_counter",
            "task_clock",
            "residency_own",
            "residency_others",
            "tree",
            "high_water",
            "reset_peaks",
            "pss",
            "page_tables",
            "others_processes",
            "io",
            "storage",
            "run_wait",
            "io_wait",
            "pressure",
            "pressure_cgroup",
            "swap",
            "cgroup",
            "cgroup_own",
            "host_memory",
            "eviction",
            "cpus",
            "descriptors",
            "locked_memory",
            "notify",
            "devices",
        ]
    );
}

#[test]
fn what_is_not_had_in_full_has_a_reason() {
    for who in [root(), user(), Who { proc: false, user_namespace: true, ..user() }] {
        for (_, findings) in little().sections(&who) {
            for finding in findings {
                assert!(finding.state == State::Yes || finding.reason.is_some(), "{finding:?}");
            }
        }
    }
}

#[test]
fn perf_is_remedied_by_what_stands_in_its_way() {
    let with = |errno, who: &Who, item| {
        let mut tried = little();
        let refused = || Err(perf::Refused::Open(refused(errno)));
        tried.perf = perf::Tried { stream: refused(), faults: refused(), user_faults: refused(), ..tried.perf };
        (find(&tried, who, item).reason.unwrap(), remedies(&tried, who, item))
    };
    let strict = Who { perf_event_paranoid: Some(3), ..user() };
    let (reason, remedy) = with(libc::EACCES, &strict, "event_stream");
    assert!(reason.contains("perf_event_paranoid is 3"), "{reason}");
    assert_eq!(remedy, "sysctl kernel.perf_event_paranoid=2   (as root)");
    let in_docker = Who { container: vec!["/.dockerenv".into()], ..strict.clone() };
    assert!(with(libc::EACCES, &in_docker, "event_stream").1.contains("--cap-add PERFMON"));
    // At the usual level it is not the setting: a filter is.
    let filtered = Who { seccomp_filter: true, ..user() };
    let (reason, remedy) = with(libc::EPERM, &filtered, "event_stream");
    assert!(reason.contains("a seccomp filter is in force") && remedy.contains("seccomp=PROFILE"), "{reason} {remedy}");
    assert!(!remedy.contains("sysctl"));
    // Capabilities of a user namespace of one's own open nothing there.
    let namespaced = Who { user_namespace: true, perf_event_paranoid: Some(3), ..root() };
    assert!(with(libc::EACCES, &namespaced, "event_stream").1.contains("sysctl"));
    assert_eq!(with(libc::EMFILE, &user(), "event_stream").1, "ulimit -n 4096");
    assert!(with(libc::ENOSYS, &user(), "event_stream").0.contains("no perf events"));

    // The usual case of an ordinary user: everything but the faults inside the kernel.
    let mut usual = everything();
    usual.perf.faults = Err(perf::Refused::Open(refused(libc::EACCES)));
    usual.perf.fault_count = Err("only faults in user mode".into());
    assert_eq!(find(&usual, &user(), "event_stream").state, State::Yes);
    assert_eq!(find(&usual, &user(), "fault_samples").state, State::Bounded);
    assert_eq!(remedies(&usual, &user(), "fault_samples"), "sysctl kernel.perf_event_paranoid=1   (as root)");
    assert_eq!(remedies(&usual, &user(), "fault_counter"), "sysctl kernel.perf_event_paranoid=1   (as root)");

    let mut locked = everything();
    locked.perf.stream = Err(perf::Refused::Ring(refused(libc::EPERM)));
    assert!(
        remedies(&locked, &user(), "event_stream")
            .starts_with("ulimit -l unlimited\nsysctl kernel.perf_event_mlock_kb=516")
    );
}

#[test]
fn others_files_have_a_bound_only_where_page_tables_show() {
    let mut tried = little();
    assert_eq!(find(&tried, &user(), "residency_others").state, State::No);
    tried.processes.pagemap = Ok("pagemap");
    let bounded = find(&tried, &user(), "residency_others");
    assert_eq!((bounded.state, bounded.source.as_str()), (State::Bounded, "page tables: a lower bound"));
}

#[test]
fn pressure_that_is_switched_off_is_told_from_pressure_that_is_not_built() {
    let mut tried = little();
    assert_eq!(remedies(&tried, &user(), "pressure"), "psi=1 on the kernel's command line");
    tried.accounts.pressure = Err(refused(libc::ENOENT));
    assert!(remedies(&tried, &user(), "pressure").contains("CONFIG_PSI"));
}

#[test]
fn the_table_fits_and_is_as_recorded() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/doctor/tests/little.txt");
    let who = Who { container: vec!["/.dockerenv".into()], seccomp_filter: true, ..user() };
    let file = |by: Option<&str>, state| place::File {
        path: "/models/a\u{1b}[31m.safetensors".into(),
        owner_uid: 0,
        mode: "0644".into(),
        writable: false,
        format: Some(crate::artifact::Format::Safetensors),
        size_bytes: 5 << 30,
        payload_bytes: Some(4 << 30),
        payload_reason: None,
        residency_by: by.map(str::to_owned),
        residency_state: state,
        residency_reason: "mincore withholds its answer: neither the file's owner nor allowed to write it".into(),
        remedies: residency::remedies(Some("/models/a.safetensors".as_ref())),
    };
    let places = [
        Place {
            path: "/models".into(),
            problem: None,
            filesystem: Some("overlay".into()),
            mount: Some("/".into()),
            storage: Some("overlay".into()),
            behind: vec!["/ (overlay) → /var/lib/layers (ext4) → nvme0n1".into()],
            warnings: vec!["overlay: mincore alone sees the layers' page cache, which is dearer to ask".into()],
            artifacts: vec![file(Some("none"), State::Bounded)],
            left_out: 3,
        },
        Place {
            path: "/nowhere".into(),
            problem: Some("No such file or directory".into()),
            filesystem: None,
            mount: None,
            storage: None,
            behind: Vec::new(),
            warnings: Vec::new(),
            artifacts: Vec::new(),
            left_out: 0,
        },
    ];
    let shown = table::table(&who, &little().sections(&who), &places);
    for line in shown.lines() {
        assert!(crate::report::text::columns(line) <= 80, "{line}");
        assert!(!line.contains('\u{1b}'));
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &shown).unwrap();
    }
    assert_eq!(shown, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 writes it anew");
}
