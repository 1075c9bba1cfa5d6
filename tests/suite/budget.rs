//! `stagemark check`: limits held against recorded runs, by the program.

use std::path::Path;

use serde_json::Value;

use super::support::{finish, folder, stagemark};

/// Exit status, what was printed and what was complained of.
fn check(run: &str, budget: &str, json: bool) -> (i32, String, String) {
    let folder = folder();
    let file = folder.path().join("budget.toml");
    std::fs::write(&file, budget).unwrap();
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runs").join(run);
    let mut command = stagemark();
    command.arg("check").arg(run).args(["--budget", "budget.toml"]).current_dir(folder.path());
    if json {
        command.arg("--json");
    }
    let output = finish(&mut command);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_budget_is_kept_broken_or_not_known() {
    let (status, text, _) = check("lazy", "[module_populated]\ntime = \"1 h\"\npayload_bytes = \"256 MiB\"\n", false);
    assert_eq!(status, 0, "{text}");
    assert!(text.starts_with("stage ") && text.ends_with("\nevery limit was kept\n"), "{text}");
    let row = text.lines().find(|line| line.contains("payload_bytes")).unwrap();
    assert_eq!(
        row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>(),
        ["module_populated", "payload_bytes", "256 MiB", "256 MiB", "kept"]
    );
    let (status, text, _) = check("lazy", "[module_populated]\npayload_bytes = 1\ntime = \"1 h\"\n", false);
    assert_eq!(status, 1, "{text}");
    let (status, text, _) = check("lazy", "[module_populated]\ndevice_peak = \"70 GiB\"\ntime = \"1 h\"\n", true);
    assert_eq!(status, 3, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["answer"], "unknown");
    let limit = &answer["limits"][0];
    assert_eq!(
        (&limit["limit"], &limit["low"], &limit["verdict"]),
        (&(70u64 << 30).into(), &Value::Null, &"unknown".into())
    );
}

/// What a report shows may be written down as a limit, and a verdict never contradicts the amounts beside it.
#[test]
fn a_limit_between_whole_units_is_read_and_shown_to_the_last_digit() {
    let limit = "[module_populated]\npayload_bytes = \"256.00000001 MiB\"\n";
    let (status, text, errors) = check("lazy", limit, false);
    assert_eq!(status, 0, "{text}{errors}");
    let (status, text, _) = check("lazy", "[module_populated]\npayload_bytes = \"255.9999 MiB\"\n", false);
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("268435351 B") && text.contains("268435456 B"), "{text}");
}

#[test]
fn what_is_no_budget_is_said_by_line_and_column() {
    let (status, _, errors) = check("lazy", "[module_populated]\ntimes_s = 60\n", false);
    assert_eq!(
        (status, errors.as_str()),
        (2, "stagemark: budget.toml:2:1: unknown limit `times_s`; did you mean `time_s`?\n")
    );
    let (status, _, errors) = check("none", "[module_populated]\ntime_s = 60\n", false);
    assert_eq!(status, 2, "{errors}");
}
