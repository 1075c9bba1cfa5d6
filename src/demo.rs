//! `stagemark demo`: makes a model file and has the bundled reference loader take it the way that misleads most, so
//! that a newcomer sees what the tool answers: the mapping stands at once, a module "loads" with a quarter of the
//! payload in memory, and the first response pays for the rest.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use stagemark_fixtures::models::{self, Fill};

use crate::cache::{self, Wish};
use crate::probe::device::Place;
use crate::probe::stream::Choice;
use crate::record::{Options, Then};
use crate::report::color::Color;

const PAYLOAD: u64 = 512 << 20;
const TENSORS: u32 = 32;

/// Makes the model file, cold, and says what to run.
pub fn prepare(out: Option<PathBuf>) -> anyhow::Result<Options> {
    let folder = Path::new("stagemark-runs");
    let hint =
        || format!("{}: the demo writes its model file here: run it from a folder where you may", folder.display());
    std::fs::create_dir_all(folder).with_context(hint)?;
    let model = folder.join("demo-model.safetensors");
    models::uniform(&model, PAYLOAD, TENSORS, Fill::Pattern).with_context(|| model.display().to_string())?;
    // Cold, as a model is that nobody has used yet.
    cache::drop_pages(&std::fs::File::open(&model)?, cache::WHOLE).with_context(|| model.display().to_string())?;
    let program = std::env::current_exe()?;
    let argv = [
        program.as_os_str(),
        "reference-loader".as_ref(),
        "--mode".as_ref(),
        "mmap-lazy".as_ref(),
        "--touch".as_ref(),
        (PAYLOAD / 4).to_string().as_ref(),
        "--pace".as_ref(),
        (PAYLOAD / 2).to_string().as_ref(),
        "--hold".as_ref(),
        "0.5".as_ref(),
        "--model".as_ref(),
        model.as_os_str(),
    ]
    .map(Into::into)
    .into();
    Ok(Options {
        out,
        artifacts: Vec::new(),
        stages: None,
        one_offs: Vec::new(),
        until: None,
        then: Then::Keep,
        interval: Duration::from_millis(20),
        quiet: false,
        color: Color::Auto,
        output_log: true,
        cgroup: false,
        reset_peaks: false,
        faults: None,
        devices: Place::default(),
        header_env: Vec::new(),
        workload: None,
        repeat_response: 0,
        stream: Choice::Usual,
        cache: Wish::AsIs,
        argv,
    })
}
