//! Files that change, go, or have more than one name while they are mapped.

use std::os::unix::fs::symlink;

use stagemark_fixtures::models::{Fill, TensorSpec, onnx_external};

use crate::bench::{Bench, MIB, Model, PAGE, word};
use crate::claim::Claim;
use crate::harness::Case;
use crate::needs::Need;
use crate::profile::Profile;

pub const CASES: &[Case] = &[
    Case::new("deleted_while_mapped", deleted),
    Case::new("deleted_then_mapped", deleted_then_mapped),
    Case::new("truncated_while_mapped", truncated),
    Case::new("replaced_while_mapped", replaced),
    Case::new("replaced_before_it_is_mapped", replaced_before),
    Case::new("replaced_after_it_was_found", replaced_after),
    Case::new("grown_while_mapped", grown),
    Case::new("links_to_one_inode_counted_once", links),
    Case::new("links_discovered_counted_once", links_discovered),
    Case::new("external_data_mapped_privately", external_data),
    Case::new("same_file_through_two_mounts", two_mounts).needs(&[Need::Mounts]),
    Case::new("opened_by_a_descriptors_path", by_descriptor),
    Case::new("relative_path_after_chdir", relative),
    Case::new("opened_in_a_chroot", chroot).needs(&[Need::Root]),
    Case::new("opened_in_another_mount_namespace", namespace).needs(&[Need::Mounts]),
    Case::new("discovered_in_another_mount_namespace", namespace_discovered).needs(&[Need::Mounts]),
];

/// An ONNX model's external data, mapped as onnxruntime does it; padding between the tensors is no payload. Declared by
/// the model alone, and found by the data's being mapped.
fn external_data(bench: &Bench) -> Vec<Claim> {
    const TENSORS: u64 = 8;
    let each = 4 * MIB - PAGE;
    let specs: Vec<_> = (0..TENSORS).map(|at| (TensorSpec::flat(format!("w{at}"), "", each / 4, 4), 1)).collect();
    let path = bench.path("model.onnx");
    let [_, data] = onnx_external(&path, "model.onnx_data", 4 * MIB, &specs, Fill::Pattern).unwrap();
    let payload = TENSORS * each;
    let data = Model { path: data.path, size: data.size, payload, start: 0 };
    let script = format!(
        "open d {}\n map m d 0 {size} private rw\n advise m 0 {size} random\n touch m 0 16M\n hold 700\n mark touched\n",
        word(&data.path),
        size = data.size
    );
    let mut claims = Vec::new();
    for launch in [
        bench.acts(&script).artifact(&path).payload(payload),
        // The model itself is not opened by anyone, so that the set is the data.
        bench.acts(&script).any_payload(),
    ] {
        data.evict();
        let run = launch.run();
        claims.push(run.exactly("touched", "payload_bytes", payload));
        claims.extend(run.mapped("touched", data.size, payload));
        claims.push(run.within("touched", "resident_payload_bytes", 4 * each..=4 * each));
    }
    claims
}

/// A script about one model, `f`, which is declared.
fn run(bench: &Bench, model: &Model, script: &str) -> Profile {
    let script = format!("open f {}\n{script}", word(&model.path));
    bench.acts(&script).artifact(&model.path).payload(model.payload).run()
}

const MAP: &str = "map m f 0 33558528 shared ro\n advise m 0 33558528 random\n touch m 4096 16M\n mark before\n";

fn deleted(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let script = format!("{MAP} unlink {}\n touch m 4096 24M\n mark after\n", word(&model.path));
    let run = run(bench, &model, &script);
    let mut claims = run.mapped_as_told(&["before", "after"]);
    claims.push(run.resident("before", 16 * MIB, 0));
    claims.push(run.resident("after", 24 * MIB, 0));
    claims
}

fn deleted_then_mapped(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse);
    let path = word(&model.path);
    // Another file is made by the same name before the deleted one is mapped.
    let script = format!("unlink {path}\n open g {path} create\n extend {path} 1M\n close g\n {MAP}");
    let run = run(bench, &model, &script);
    let mut claims = run.mapped_as_told(&["before"]);
    claims.push(run.resident("before", 16 * MIB, 0));
    claims
}

fn truncated(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let script = format!("{MAP} truncate {} 8392704\n mark after\n", word(&model.path));
    let run = run(bench, &model, &script);
    // 8 MiB of payload behind the header are left; what was beyond the end is in nobody's memory, and no byte of the
    // file lies there to be mapped.
    let mut claims = run.mapped_as_told(&["before", "after"]);
    claims.push(run.exactly("after", "mapped_payload_bytes", 8 * MIB));
    claims.push(run.resident("before", 16 * MIB, 0));
    claims.push(run.resident("after", 8 * MIB, 0));
    claims
}

fn replaced(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let other = Model::write(bench.path("other.safetensors"), 32 * MIB, Fill::Sparse);
    let (path, new) = (word(&model.path), word(&other.path));
    // The new file by the old name is another inode: its pages are not the artifact's.
    let script = format!("{MAP} rename {new} {path}\n open g {path}\n read g 0 33558528\n mark after\n");
    let run = run(bench, &model, &script);
    let mut claims = run.mapped("after", model.size, model.payload).to_vec();
    claims.push(run.resident("after", 16 * MIB, 0));
    claims
}

fn replaced_before(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Pattern);
    let other = Model::write(bench.path("other.safetensors"), 16 * MIB, Fill::Sparse).warm();
    let (path, new) = (word(&model.path), word(&other.path));
    let script = format!(
        "rename {new} {path}\n open g {path}\n map m g 0 8M shared ro\n touch m 0 8M\n hold 700\n mark mapped\n"
    );
    // Declared is the file that had the name: nothing of it is mapped.
    let declared = run(bench, &model, &script);
    let mut claims = declared.mapped("mapped", 0, 0).to_vec();
    claims.push(declared.within("mapped", "resident_payload_bytes", 0..=0));
    // Where files join the set as they are found, the one that has the name now does.
    let model = bench.model(32 * MIB, Fill::Pattern);
    let other = Model::write(bench.path("other.safetensors"), 16 * MIB, Fill::Sparse).warm();
    let run = bench.acts(&format!("open f {path}\n{script}")).run();
    claims.extend(run.mapped("mapped", 8 * MIB, 8 * MIB - PAGE));
    // The old one was open for a moment: it may have been found, too.
    claims.push(run.within("mapped", "payload_bytes", other.payload..=other.payload + model.payload));
    claims
}

/// Found by being opened, and replaced then: both are of the set, and each is mapped as it is.
fn replaced_after(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse);
    let other = Model::write(bench.path("other.safetensors"), 16 * MIB, Fill::Sparse).warm();
    let (path, new) = (word(&model.path), word(&other.path));
    let script = format!(
        "open f {path}\n hold 700\n mark found\n rename {new} {path}\n open g {path}\n map m g 0 8M shared ro\n \
         hold 700\n mark one\n map n f 0 4M shared ro\n mark both\n"
    );
    let run = bench.acts(&script).any_payload().run();
    let mut claims = vec![run.exactly("found", "payload_bytes", model.payload)];
    claims.push(run.exactly("one", "payload_bytes", model.payload + other.payload));
    claims.extend(run.mapped("one", 8 * MIB, 8 * MIB - PAGE));
    claims.extend(run.mapped("both", 12 * MIB, 12 * MIB - 2 * PAGE));
    claims
}

fn grown(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse).warm();
    let path = word(&model.path);
    // The mapping is longer than the file, which then grows into it: those bytes are mapped too. The payload is what the
    // header said.
    let script = format!("map m f 0 48M shared ro\n mark before\n extend {path} 40M\n mark after\n");
    let run = run(bench, &model, &script);
    let mut claims = run.mapped("before", model.size, model.payload).to_vec();
    claims.push(run.exactly("after", "mapped_bytes", 40 * MIB));
    claims.push(run.exactly("after", "mapped_payload_bytes", model.payload));
    claims.push(run.resident("after", model.payload, 0));
    claims
}

/// The script of three names for one file: each opened and mapped, a different third by each.
fn by_three_names(bench: &Bench, model: &Model) -> String {
    let (hard, soft) = (bench.path("hard.safetensors"), bench.path("soft.safetensors"));
    std::fs::hard_link(&model.path, &hard).unwrap();
    symlink(&model.path, &soft).unwrap();
    let [path, hard, soft] = [&model.path, &hard, &soft].map(word);
    format!(
        "open f {path}\n open h {hard}\n open s {soft}\n map a f 0 12M shared ro\n map b h 8M 12M shared ro\n\
         map c s 16M 16781312 shared ro\n touch a 0 12M\n touch b 0 12M\n touch c 0 16781312\n hold 700\n mark mapped\n"
    )
}

fn one_artifact(run: &Profile, model: &Model) -> Vec<Claim> {
    let mut claims = vec![run.exactly("mapped", "artifacts", 1)];
    claims.push(run.exactly("mapped", "payload_bytes", model.payload));
    claims.extend(run.mapped("mapped", model.size, model.payload));
    claims.push(run.resident("mapped", model.payload, 0));
    claims
}

fn links(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse);
    let script = by_three_names(bench, &model);
    let launch = bench.acts(&script).artifact(&model.path).artifact(bench.path("hard.safetensors"));
    let run = launch.artifact(bench.path("soft.safetensors")).payload(model.payload).run();
    one_artifact(&run, &model)
}

fn links_discovered(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse);
    let script = by_three_names(bench, &model);
    let run = bench.acts(&script).run();
    one_artifact(&run, &model)
}

fn two_mounts(bench: &Bench) -> Vec<Claim> {
    let folder = bench.folder("place");
    let model = Model::write(folder.join("model.safetensors"), 32 * MIB, Fill::Sparse);
    let other = bench.mount("bound", &["--bind".as_ref(), folder.as_os_str()]).join("model.safetensors");
    let script = format!(
        "open f {}\n open g {}\n map a f 0 20M shared ro\n map b g 12M 20975616 shared ro\n touch a 0 20M\n\
         touch b 0 20975616\n mark mapped\n",
        word(&model.path),
        word(&other)
    );
    let run = bench.acts(&script).artifact(&model.path).artifact(&other).payload(model.payload).run();
    one_artifact(&run, &model)
}

fn by_descriptor(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(32 * MIB, Fill::Sparse).warm();
    let script = "open g /proc/self/fd/:f\n close f\n map m g 0 33558528 shared ro\n mark mapped\n";
    one_artifact(&run(bench, &model, script), &model)
}

fn relative(bench: &Bench) -> Vec<Claim> {
    let folder = bench.folder("deep");
    let model = Model::write(folder.join("model.safetensors"), 32 * MIB, Fill::Sparse).warm();
    let script = format!(
        "chdir {}\n open f ../deep/./model.safetensors\n map m f 0 33558528 shared ro\n hold 700\n mark mapped\n",
        word(&folder)
    );
    let run = bench.acts(&script).run();
    one_artifact(&run, &model)
}

fn chroot(bench: &Bench) -> Vec<Claim> {
    let root = bench.folder("root");
    std::fs::create_dir(root.join("models")).unwrap();
    let model = Model::write(root.join("models/model.safetensors"), 32 * MIB, Fill::Sparse).warm();
    let script = format!(
        "chroot {}\n open f /models/model.safetensors\n map m f 0 33558528 shared ro\n touch m 0 16M\n mark mapped\n",
        word(&root)
    );
    let run = bench.acts(&script).artifact(&model.path).payload(model.payload).run();
    one_artifact(&run, &model)
}

/// The loader's own mount namespace has the model where the profiler's has another file by the same name.
fn namespace_script(bench: &Bench) -> (Model, Model, String) {
    let (inside, outside) = (bench.folder("inside"), bench.folder("outside"));
    let model = Model::write(inside.join("model.safetensors"), 32 * MIB, Fill::Sparse).warm();
    let decoy = Model::write(outside.join("model.safetensors"), 8 * MIB, Fill::Sparse);
    let script = format!(
        "unshare\n bind {} {}\n open f {}\n map m f 0 33558528 shared ro\n touch m 0 16M\n hold 700\n mark mapped\n",
        word(&inside),
        word(&outside),
        word(&decoy.path)
    );
    (model, decoy, script)
}

fn namespace(bench: &Bench) -> Vec<Claim> {
    let (model, decoy, script) = namespace_script(bench);
    let run = bench.acts(&script).artifact(&model.path).artifact(&decoy.path).run();
    let mut claims = run.mapped("mapped", model.size, model.payload).to_vec();
    // The other's payload counts, and nothing of it is mapped or resident.
    claims.push(run.exactly("mapped", "payload_bytes", model.payload + decoy.payload));
    claims.push(run.resident("mapped", model.payload, 0));
    claims
}

fn namespace_discovered(bench: &Bench) -> Vec<Claim> {
    let (model, _, script) = namespace_script(bench);
    let run = bench.acts(&script).run();
    one_artifact(&run, &model)
}
