//! Names that a path may have and that a line-wise reader of /proc gets wrong.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use stagemark_fixtures::models::Fill;

use crate::bench::{Bench, MIB, Model, word};
use crate::claim::Claim;
use crate::harness::Case;
use crate::needs::Need;

pub const CASES: &[Case] = &[
    Case::new("path_with_a_newline", |bench| named(bench, b"new\nline.safetensors", true)),
    Case::new("path_not_utf8", |bench| named(bench, b"\xff\xfe\x80.safetensors", true)),
    Case::new("path_with_trailing_spaces", |bench| named(bench, b"model.safetensors  ", false)),
    Case::new("path_that_ends_in_deleted", |bench| named(bench, b"model.safetensors (deleted)", false)),
    Case::new("path_that_ends_in_deleted_and_is", deleted_and_deleted),
    Case::new("path_with_a_literal_escape", |bench| named(bench, b"new\\012line.safetensors", true)),
    Case::new("path_with_both_escapes", |bench| named(bench, b"a\\012b\nc.safetensors", true)),
    Case::new("two_paths_that_read_alike", read_alike),
    Case::new("path_of_4000_bytes", long),
    Case::new("path_that_looks_like_shared_memory", sysv).needs(&[Need::Root]),
];

const SCRIPT: &str =
    "map m f 0 8392704 shared ro\n advise m 0 8392704 random\n touch m 4096 4M\n hold 700\n mark mapped\n";

fn claims(bench: &Bench, model: &Model, discover: bool) -> Vec<Claim> {
    let script = format!("open f {}\n{SCRIPT}", word(&model.path));
    let declared = bench.acts(&script).artifact(&model.path).payload(model.payload).run();
    let mut claims = declared.mapped("mapped", model.size, model.payload).to_vec();
    claims.push(declared.resident("mapped", 4 * MIB, 0));
    if discover {
        // By the file's own mapping alone.
        let script = script.replace("touch m", "close f\n touch m");
        let run = bench.acts(&script).run();
        claims.push(run.exactly("mapped", "payload_bytes", model.payload));
        claims.extend(run.mapped("mapped", model.size, model.payload));
    }
    claims
}

fn named(bench: &Bench, name: &[u8], discover: bool) -> Vec<Claim> {
    let model = Model::write(bench.path(OsStr::from_bytes(name)), 8 * MIB, Fill::Pattern);
    claims(bench, &model, discover)
}

fn deleted_and_deleted(bench: &Bench) -> Vec<Claim> {
    let model = Model::write(bench.path("model.safetensors (deleted)"), 8 * MIB, Fill::Pattern);
    // By the name without the suffix there is another file, which is an artifact too.
    let other = Model::write(bench.path("model.safetensors"), 4 * MIB, Fill::Sparse);
    let path = word(&model.path);
    let script = format!("open f {path}\n{SCRIPT} unlink {path}\n touch m 4096 8M\n mark gone\n");
    let run = bench.acts(&script).artifact(&model.path).artifact(&other.path).payload(12 * MIB).run();
    let mut claims = run.mapped("mapped", model.size, model.payload).to_vec();
    claims.extend(run.mapped("gone", model.size, model.payload));
    claims.push(run.resident("gone", 8 * MIB, 0));
    claims
}

/// In maps a newline is written as four characters, and those four as themselves.
fn read_alike(bench: &Bench) -> Vec<Claim> {
    let newline = Model::write(bench.path("x\ny.safetensors"), 8 * MIB, Fill::Sparse);
    let literal = Model::write(bench.path("x\\012y.safetensors"), 8 * MIB, Fill::Sparse);
    let script = format!(
        "open f {}\n open g {}\n map m f 4096 4M shared ro\n map n g 4096 1M shared ro\n hold 700\n mark mapped\n",
        word(&newline.path),
        word(&literal.path)
    );
    let run = bench.acts(&script).artifact(&newline.path).artifact(&literal.path).payload(16 * MIB).run();
    // One file's 4 MiB and the other's first MiB: taken for one file they would be 4.
    run.mapped("mapped", 5 * MIB, 5 * MIB).to_vec()
}

fn long(bench: &Bench) -> Vec<Claim> {
    let mut folder = bench.path("");
    // Made from inside, a folder at a time, so that it may be as long as a path can be (PATH_MAX is 4,096 with its end).
    while folder.as_os_str().len() < 3_700 {
        folder.push("d".repeat(250));
    }
    folder.push("e".repeat(3_970 - folder.as_os_str().len()));
    std::fs::create_dir_all(&folder).unwrap();
    let model = Model::write(folder.join("model.safetensors"), 8 * MIB, Fill::Pattern);
    assert!(model.path.as_os_str().len() > 3_980);
    claims(bench, &model, true)
}

fn sysv(bench: &Bench) -> Vec<Claim> {
    struct Gone(PathBuf);
    impl Drop for Gone {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
    // What maps shows of System V shared memory begins so, too (ipc/shm.c).
    let path = Gone(PathBuf::from(format!("/SYSV{:08x}", std::process::id())));
    let model = Model::write(path.0.clone(), 8 * MIB, Fill::Pattern);
    claims(bench, &model, false)
}
