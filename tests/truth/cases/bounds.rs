//! Figures that cannot be had but for a bound: an ordinary user on root's file, where mincore(2) and cachestat(2) tell
//! nothing.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use stagemark_fixtures::models::Fill;

use crate::bench::{Bench, MIB, PAGE, word};
use crate::claim::{Claim, Figure};
use crate::confine::NOBODY;
use crate::harness::Case;
use crate::needs::Need;
use crate::program;
use crate::run::Launch;
use crate::support::stagemark;

pub const CASES: &[Case] = &[Case::new("page_tables_of_roots_file_to_the_page", to_the_page).needs(&[Need::Root])];

fn to_the_page(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    std::fs::set_permissions(&model.path, Permissions::from_mode(0o644)).unwrap();
    std::fs::set_permissions(bench.path(""), Permissions::from_mode(0o777)).unwrap();
    // Where this was built may be closed to others.
    let program = bench.path("stagemark");
    program::copy(Path::new(stagemark().get_program()), &program);
    // One page of each 64 KiB: none that a fault brings in around another.
    let touches: String = (0..256).map(|place| format!("touch m {} 1\n", PAGE + place * 65_536)).collect();
    let script = format!(
        "open f {}\n map m f 0 33558528 shared ro\n advise m 0 33558528 random\n mark none\n {touches} mark touched\n \
         touch m 16M 8M\n mark more\n",
        word(&model.path)
    );
    let script = bench.script("scattered", &script);
    let argv = [program.as_os_str(), "reference-loader".as_ref(), "acts".as_ref(), script.as_os_str()];
    let mut launch = Launch::new(Command::new(&program), bench.path("run"), argv);
    let truth = launch.truth_path();
    launch.arguments([truth]);
    let run = launch.artifact(&model.path).payload(model.payload).by_user(NOBODY).run();
    let low = |stage: &str, pages: u64| {
        let figure = match run.at(stage, "resident_payload_low_bytes") {
            Figure::Exact(low) => Figure::Bounds(Some(low), None),
            other => other,
        };
        Claim::exact(format!("resident_payload_low_bytes at {stage}"), pages * PAGE, figure).widest(0)
    };
    let mut claims = vec![low("none", 0), low("touched", 256), low("more", 256 + 2_048)];
    let trust = run.run.json()["artifacts"][0]["trust"]["by"].clone();
    if trust == "cachestat" {
        // A kernel whose cachestat answers anyone: then the answer is the truth.
        claims.push(run.resident("touched", 256 * PAGE, 0));
    } else {
        let resident = run.at("touched", "resident_payload_bytes");
        claims.push(Claim::absent("resident_payload_bytes at touched", "neither the file's owner", resident));
    }
    claims.extend(run.mapped("touched", model.size, model.payload));
    claims
}
