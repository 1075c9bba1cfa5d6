//! The bundled stage files: what each matches in a log of its family, which command lines choose it, the traps of each
//! family; and the verb that shows them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use stagemark::clock::At;
use stagemark::event::{ArtifactId, Event, Found as By, Mark, Stream, What};
use stagemark::metric::{Metric, Values};
use stagemark::sample::Sample;
use stagemark::stage::trial::{Found, Trial};
use stagemark::stage::{Condition, Matcher, StageFile};
use stagemark::watch::log::SavedOutput;
use stagemark::watch::{Line, LineEnd};

use crate::program;
use crate::support::{finish, folder, stagemark};

fn logs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/logs")
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_string).collect()
}

/// The lines of an example log with their numbers. `1|` and `2|` before a line say which stream it was printed on; where
/// they are missing that is not known.
fn lines_of(name: &str) -> Vec<(u64, Line)> {
    let bytes = std::fs::read(logs().join(format!("{name}.log"))).unwrap_or_else(|error| panic!("{name}.log: {error}"));
    let streams = [Stream::Stdout, Stream::Stderr, Stream::Both];
    let mut outputs = streams.map(SavedOutput::new);
    let (mut lines, mut last) = (Vec::new(), 0);
    let mut take = |number, line| lines.push((number, line));
    for (number, line) in (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n')) {
        let (output, text) = match line {
            [b'1', b'|', text @ ..] => (0, text),
            [b'2', b'|', text @ ..] => (1, text),
            text => (2, text),
        };
        outputs[output].push(number, text, &mut take);
        last = number;
    }
    outputs.iter_mut().for_each(|output| output.finish(last, &mut take));
    lines
}

/// What a stage file finds in lines: `LINE STAGE` in the order of lines, `…` behind it where its condition has parts that
/// no line shows; then `- STAGE` for those that a line could have shown and none did.
fn found(family: &str, lines: &[(u64, Line)], argv: &[String]) -> String {
    let mut trial = Trial::new(StageFile::load(family).unwrap(), argv);
    lines.iter().for_each(|(number, line)| trial.line(*number, line));
    let mut reached = Vec::new();
    let mut missed = Vec::new();
    for tried in trial.found() {
        match tried.found {
            Found::Matched { by, .. } => {
                reached
                    .push((by.line, format!("{} {}{}\n", by.line, tried.stage, if tried.whole { "" } else { " …" })));
            }
            Found::Partly(_) | Found::Missed => missed.push(format!("- {}\n", tried.stage)),
            Found::NotByOutput => {}
        }
    }
    reached.sort_by_key(|(line, _)| *line);
    reached.into_iter().map(|(_, text)| text).chain(missed).collect()
}

/// The example logs of each family, `NAME` and `NAME.WORDING`.
fn examples() -> BTreeMap<String, Vec<String>> {
    let mut examples: BTreeMap<String, Vec<String>> =
        StageFile::embedded().into_iter().map(|file| (file.name, Vec::new())).collect();
    for entry in std::fs::read_dir(logs()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".log") {
            let family = name.split('.').next().unwrap();
            examples.get_mut(family).unwrap_or_else(|| panic!("{name}.log is of no stage file")).push(name.to_string());
        }
    }
    examples
}

#[test]
fn every_family_has_an_example_log_with_the_marks_that_it_gives() {
    for (family, names) in examples() {
        assert!(names.contains(&family), "there is no fixtures/logs/{family}.log");
        for name in names {
            let marks = found(&family, &lines_of(&name), &[]);
            let path = logs().join(format!("{name}.expected"));
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::write(&path, &marks).unwrap();
            }
            let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(marks, expected, "{name}");
        }
    }
}

/// Environment variables and service managers send a program's lines wherever they like.
#[test]
fn no_family_needs_a_line_on_a_certain_stream() {
    for (family, names) in examples() {
        for name in names.iter().filter(|_| family != "reference-loader") {
            let lines = lines_of(name);
            let marks = found(&family, &lines, &[]);
            for other in [Stream::Stdout, Stream::Stderr, Stream::Both] {
                let mut moved = lines.clone();
                moved.iter_mut().for_each(|(_, line)| line.stream = other);
                assert_eq!(found(&family, &moved, &[]), marks, "{name} on {other:?}");
            }
        }
    }
}

/// The command line of each family as its documentation has it, which no other family's file fits.
#[test]
fn command_lines_choose_their_own_family() {
    let cases = [
        ("vllm", "python -m vllm.entrypoints.openai.api_server --model org/name"),
        ("vllm", "/usr/bin/python3 /usr/local/bin/vllm serve org/name --port 8000"),
        ("vllm", "vllm serve org/name"),
        ("sglang", "python3 -m sglang.launch_server --model-path org/name"),
        ("sglang", "/opt/venv/bin/python /opt/venv/bin/sglang serve --model-path org/name"),
        ("tgi", "text-generation-launcher --model-id org/name"),
        ("tensorrt-llm", "/usr/bin/python3 /usr/local/bin/trtllm-serve org/name"),
        ("tensorrt-llm", "python -m tensorrt_llm.commands.serve serve org/name"),
        ("llama-cpp", "/usr/local/bin/llama-server -m model.gguf"),
        ("llama-cpp", "llama-server -hf org/name"),
        ("llama-cpp-cli", "./build/bin/llama-cli -m model.gguf -p hi"),
        ("llama-cpp-cli", "llama-completion -m model.gguf"),
        ("ollama", "/usr/local/bin/ollama serve"),
        ("triton", "tritonserver --model-repository=/models"),
        ("mistralrs", "mistralrs serve -m org/name"),
        ("mistralrs", "./target/release/mistralrs-server --port 1234 plain -m org/name"),
        ("tei", "text-embeddings-router --model-id org/name"),
        ("cosmos", "python -m cosmos_framework.scripts.inference -i in.json -o out"),
        ("cosmos", "/usr/bin/python /opt/bin/torchrun --nproc-per-node=4 -m cosmos_framework.scripts.inference -o out"),
        ("reference-loader", "stagemark reference-loader model.safetensors"),
    ];
    let files = StageFile::embedded();
    for (family, line) in cases {
        let fitting: Vec<&str> =
            files.iter().filter(|file| file.fits(&words(line))).map(|file| file.name.as_str()).collect();
        assert_eq!(fitting, [family], "{line}");
    }
    for file in &files {
        let is_chosen = cases.iter().any(|(family, _)| *family == file.name);
        assert_eq!(file.argv.is_empty(), !is_chosen, "{}: a command line that chooses it is to be tested", file.name);
    }
    let of_none = [
        "python train.py",
        "python -m torch.distributed.run train.py",
        "vllm bench serve",
        "ollama run llama3",
        "curl http://127.0.0.1:8000/v1/completions",
        "python -m vllm",
        "trtllm-build",
    ];
    for line in of_none {
        assert!(!files.iter().any(|file| file.fits(&words(line))), "{line}");
    }
}

#[test]
fn files_from_sources_alone_say_so_and_ask_for_good_answers_only() {
    for file in StageFile::embedded() {
        assert!(matches!(file.status.as_str(), "verified" | "unverified"));
        let until = file.until.as_deref().unwrap_or_else(|| panic!("{}: no stopping event", file.name));
        assert!(file.stage(until).is_some());
        let conditions = file.stages.iter().flat_map(|stage| stage.conditions());
        for leaf in conditions.flat_map(Condition::leaves) {
            if let Condition::Http(http) = leaf {
                assert_eq!(http.accept.status, [200], "{}: 503 is not ready, 404 is no response", file.name);
                assert!(!http.url.as_str().ends_with("}/"), "{}: a front page says nothing of a model", file.name);
            }
        }
    }
}

/// A launch that is fed to a family's file step by step.
struct Launch {
    matcher: Matcher,
    at: i64,
    marks: Vec<(String, i64)>,
}

impl Launch {
    fn of(family: &str) -> Launch {
        Launch { matcher: Matcher::new(vec![StageFile::load(family).unwrap()]), at: 0, marks: Vec::new() }
    }

    fn take(&mut self, events: Vec<Event>) {
        for event in events {
            if let What::Mark(Mark { stage, .. }) = event.what {
                self.marks.push((stage, event.at.0));
            }
        }
    }

    /// A tenth of a second passes, and this is printed.
    fn prints(&mut self, text: &str) -> &mut Launch {
        self.at += 100_000_000;
        let line = Line { stream: Stream::Stdout, bytes: text.into(), end: LineEnd::Newline };
        let events = self.matcher.line(At(self.at), Some(0), &line);
        self.take(events);
        self
    }

    fn event(&mut self, what: What) -> &mut Launch {
        self.at += 100_000_000;
        let events = self.matcher.event(&Event { at: At(self.at), uncertainty_ns: Some(0), what });
        self.take(events);
        self
    }

    fn maps(&mut self, artifact: usize) -> &mut Launch {
        let artifact = ArtifactId(artifact);
        self.event(What::Mapped { pid: 7, artifact, bytes: 1 << 30, permissions: "r--p".into() })
    }

    /// Three looks, a tenth of a second apart, at which these are so many GiB.
    fn looks(&mut self, values: &[(Metric, u64)]) -> &mut Launch {
        for _ in 0..4 {
            self.at += 100_000_000;
            let mut all = Values::ABSENT;
            all.set(Metric::PayloadBytes, 4 << 30);
            all.set(Metric::Processes, 1);
            all.set(Metric::RssBytes, 1 << 30);
            values.iter().for_each(|(metric, gib)| all.set(*metric, gib << 30));
            let sample = Sample { t: At(self.at), late_ns: 0, cost_ns: 0, values: all };
            let events = self.matcher.sample(&sample);
            self.take(events);
        }
        self
    }

    fn reached(&self, stage: &str) -> bool {
        self.marks.iter().any(|(marked, _)| marked == stage)
    }
}

const DEVICE: Metric = Metric::DeviceLaunchBytes;

/// vLLM, SGLang and TensorRT-LLM allocate every parameter on the device before they read a weight.
#[test]
fn memory_of_empty_parameters_is_not_the_model_placed() {
    let cases = [
        (
            "vllm",
            "(Worker_TP0 pid=7) INFO 11-30 09:14:20 [base_loader.py:61] Initializing model took 0.418227 seconds",
            "(Worker_TP0 pid=7) INFO 11-30 09:14:25 [gpu_model_runner.py:3921] Model loading took 6.74 GiB memory and 4.9 seconds",
        ),
        (
            "sglang",
            "[2026-11-30 09:20:15 TP0] Load weight begin. avail mem=78.61 GB",
            "[2026-11-30 09:20:18 TP0] Load weight end. elapsed=2.64 s, type=LlamaForCausalLM, avail mem=71.80 GB",
        ),
        (
            "tensorrt-llm",
            "[11/30/2026-10:01:14] [TRT-LLM] [RANK 0] [I] Use 6.81 GB for model weights.",
            "[11/30/2026-10:01:34] [TRT-LLM] [I] Memory used after loading model weights (inside torch) in memory usage profiling: 6.92 GiB",
        ),
        (
            "llama-cpp",
            "0.00.053.770 I srv          main: loading model",
            "0.05.583.299 I srv          main: model loaded",
        ),
    ];
    for (family, allocated, placed) in cases {
        let mut launch = Launch::of(family);
        launch.looks(&[(DEVICE, 0)]).prints(allocated).looks(&[(DEVICE, 4)]);
        assert!(!launch.reached("gpu_placed"), "{family}: the parameters are empty");
        assert!(launch.prints(placed).reached("gpu_placed"), "{family}");
        let mut on_cpu = Launch::of(family);
        on_cpu.looks(&[]).prints(allocated).prints(placed).looks(&[]);
        assert!(!on_cpu.reached("gpu_placed"), "{family}: no device");
    }
}

/// llama.cpp unmaps what it has put on devices: also without a line that says so.
#[test]
fn a_mapping_that_shrinks_after_the_load_says_that_it_is_elsewhere() {
    let mut launch = Launch::of("llama-cpp");
    let mapped = Metric::MappedBytes;
    launch.maps(0).looks(&[(DEVICE, 0), (mapped, 4)]).looks(&[(DEVICE, 4), (mapped, 4)]);
    assert!(!launch.reached("gpu_placed"));
    assert!(launch.looks(&[(DEVICE, 4), (mapped, 1)]).reached("gpu_placed"));
}

/// With SGLang's overlap mode the weights come after the graphs; the order in a file binds nothing.
#[test]
fn stages_may_come_in_another_order() {
    let marks = found("sglang", &lines_of("sglang.overlap"), &[]);
    let at = |stage: &str| marks.lines().position(|line| line.contains(stage)).unwrap();
    assert!(at("graphs_captured") < at("module_populated"), "{marks}");
}

/// `safe_open` maps a file for its header, and again for its tensors.
#[test]
fn a_file_that_is_mapped_twice_is_mapped_with_the_first() {
    for family in ["safetensors", "transformers", "vllm"] {
        let mut launch = Launch::of(family);
        for artifact in [0, 1] {
            launch.event(What::Artifact { artifact: ArtifactId(artifact), found: By::Declared });
        }
        launch.maps(0).event(What::Unmapped { pid: 7, artifact: ArtifactId(0) }).maps(0);
        let marks: Vec<_> = launch.marks.iter().filter(|(stage, _)| stage == "mapping_available").collect();
        assert_eq!(marks, [&("mapping_available".to_string(), 300_000_000)], "{family}");
        assert!(!launch.reached("all_mapped"), "{family}: twice one is not two");
        if family != "vllm" {
            assert!(launch.maps(1).reached("all_mapped"), "{family}");
        }
    }
}

/// What is printed by default is enough: the library's lines (`load_tensors:`, `llama_kv_cache:`) are not.
#[test]
fn lines_hidden_at_the_default_verbosity_are_not_needed() {
    let lines = lines_of("llama-cpp");
    assert!(!lines.iter().any(|(_, line)| String::from_utf8_lossy(&line.bytes).contains("load_tensors")));
    let marks = found("llama-cpp", &lines, &[]);
    assert!(!marks.contains("- "), "{marks}");
    // Nor is a line that stands for another one there: an older build listens before it loads.
    let mut old = Launch::of("llama-cpp");
    old.prints("main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 3");
    assert!(old.marks.is_empty(), "{:?}", old.marks);
}

/// Ollama answers `/` with 200 when no model is loaded, and a request for a model that it has not with 404.
#[test]
fn an_answer_without_a_model_is_no_first_response() {
    let lines = lines_of("ollama");
    let marks = found("ollama", &lines, &[]);
    let (line, _) = marks.lines().find(|line| line.ends_with("first_response")).unwrap().split_once(' ').unwrap();
    let (_, answer) = lines.iter().find(|(number, _)| number.to_string() == line).unwrap();
    let text = String::from_utf8_lossy(&answer.bytes);
    assert!(text.contains("| 200 |") && text.contains("POST     \"/api/generate\""), "{text}");
    assert!(!StageFile::load("ollama").unwrap().stages.iter().any(|stage| {
        stage
            .conditions()
            .flat_map(Condition::leaves)
            .any(|leaf| matches!(leaf, Condition::Http(_) | Condition::Tcp(_)))
    }));
}

/// vLLM's first local rank prints for all of them; TGI's launcher is known to print a line a shard.
#[test]
fn a_line_a_rank_is_waited_for_only_where_it_is_known_to_come() {
    let count = |text: &str, lines: &[(u64, Line)]| {
        lines.iter().filter(|(_, line)| String::from_utf8_lossy(&line.bytes).contains(text)).count()
    };
    let vllm = lines_of("vllm");
    assert_eq!((count("Worker_TP1", &vllm), count("Loading weights took", &vllm)), (1, 1), "two ranks, one line");
    assert!(found("vllm", &vllm, &words("vllm serve m -tp 2")).contains("module_populated"));
    let tgi = lines_of("tgi");
    let with = |argv: &str| {
        let marks = found("tgi", &tgi, &words(argv));
        marks.lines().find(|line| line.ends_with(" module_populated")).unwrap().to_string()
    };
    let [one, two] = [with("text-generation-launcher --model-id m"), with("text-generation-launcher --num-shard 2")];
    assert_ne!(one, two);
    assert!(found("tgi", &tgi, &words("text-generation-launcher --num-shard=3")).contains("- module_populated"));
    for file in StageFile::embedded().iter().filter(|file| file.name != "tgi") {
        let normalised = serde_json::to_string(file).unwrap();
        assert!(
            !normalised.contains("\"count\":") || !normalised.replace("\"count\":1", "").contains("\"count\":"),
            "{}",
            file.name
        );
    }
}

/// A script that reads: nothing is printed, nothing mapped. Libraries take anonymous memory before the model is opened.
#[test]
fn a_silent_load_shows_in_anonymous_memory() {
    let anon = Metric::RssAnonBytes;
    for family in ["torch", "safetensors"] {
        let mut launch = Launch::of(family);
        launch.looks(&[(anon, 0)]).looks(&[(anon, 6)]);
        launch.event(What::Opened { pid: 7, artifact: ArtifactId(0) }).looks(&[(anon, 8)]);
        assert!(!launch.reached("module_populated"), "{family}: half of it");
        assert!(launch.looks(&[(anon, 10)]).reached("module_populated"), "{family}");
    }
}

#[test]
fn the_first_token_of_a_program_that_prints_it_is_on_standard_output() {
    let mut launch = Launch::of("llama-cpp-cli");
    launch.event(What::FirstOutput { stream: Stream::Stderr });
    launch.prints("main: load the model and apply lora adapter, if any");
    assert!(!launch.reached("first_response"));
    assert!(launch.event(What::FirstOutput { stream: Stream::Stdout }).reached("first_response"));
}

fn asked(arguments: &[&str]) -> (Option<i32>, String, String) {
    let folder = folder();
    let output = finish(stagemark().arg("stages").args(arguments).current_dir(folder.path()));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn stage_files_are_listed_shown_and_checked() {
    let (status, list, _) = asked(&["list"]);
    assert_eq!(status, Some(0));
    for file in StageFile::embedded() {
        assert!(list.lines().any(|line| line.split_whitespace().take(2).eq([&file.name, &file.status])), "{list}");
        let (status, text, _) = asked(&["show", &file.name]);
        assert_eq!(status, Some(0));
        assert_eq!(StageFile::parse(&text, "shown").unwrap().digest(), file.digest());
        let (status, checked, _) = asked(&["check", &file.name]);
        assert!(status == Some(0) && checked.contains(&file.digest()), "{checked}");
        assert!(file.stages.iter().all(|stage| checked.contains(&stage.name)), "{checked}");
    }
    assert!(list.lines().all(|line| line.chars().count() <= 120), "{list}");
    assert!(list.contains("by: vllm serve · vllm.entrypoints.openai.api_server"), "{list}");
    assert!(list.contains("by: --stages torch alone"), "{list}");
    let (status, _, error) = asked(&["show", "vlm"]);
    assert!(status == Some(2) && error.contains("did you mean `vllm`?"), "{error}");
}

#[test]
fn a_bad_stage_file_is_a_no_with_its_line_and_what_was_expected() {
    let folder = folder();
    let path = folder.path().join("mine.toml");
    let check = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let output = finish(stagemark().args(["stages", "check"]).arg(&path).current_dir(folder.path()));
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (status, said) = check("name = 'mine'\n[[stage]]\nname = 'a'\nwen = { log = 'x' }\n");
    assert_eq!(status, Some(1));
    assert!(said.contains("mine.toml:4:1: unknown key `wen`; did you mean `when`?"), "{said}");
    let (status, said) = check("name = 'mine'\n[[stage]]\nname = 'a'\nwhen = { mapping = 'al' }\n");
    assert!(status == Some(1) && said.contains("mine.toml:4:20: `mapping`: expected \"any\" or \"all\""), "{said}");
    let (status, said) = check("name = 'mine'\n[[stage]]\nname = 'a'\nwhen = { log = 'x' }\n");
    assert!(status == Some(0) && said.contains("by a line matching /x/"), "{said}");
    let (status, said) = check(
        "name = 'mine'\nvars = { v = { flag = '-v', default = 'mine' } }\n[[stage]]\nname = 'a'\n\
         when = { http = { url = 'http://h/', body_file = '{v}.toml', ca = '{v}.pem' } }\n",
    );
    assert_eq!(status, Some(0), "{said}");
    let depends = |key| format!("`{key}` of `a` depends on the launch; by the defaults it is mine.");
    assert!(said.contains(&(depends("body_file") + "toml, which is there\n")), "{said}");
    assert!(said.contains(&(depends("ca") + "pem: No such file or directory")), "{said}");
    let (status, _, error) = asked(&["check", "no-such-file"]);
    assert!(status == Some(2) && error.contains("no-such-file: neither a stage file nor the name of one"), "{error}");
    assert_eq!(asked(&[]).0, Some(2));
}

#[test]
fn a_saved_log_is_tried_with_its_line_numbers() {
    let folder = folder();
    let stages = folder.path().join("mine.toml");
    std::fs::write(
        &stages,
        "name = 'mine'\n[[stage]]\nname = 'half'\nwhen = { log = '(?<share>50)%' }\n[[stage]]\nname = 'both'\n\
         when = { all = [ { log = 'one' }, { log = 'two' }, { mapping = 'any' } ] }\n[[stage]]\nname = 'later'\n\
         after = ['mapped', 'both']\nwhen = { log = 'three', count = 2 }\n[[stage]]\nname = 'mapped'\nwhen = { mapping = 'any' }\n\
         [[stage]]\nname = 'never'\nwhen = { log = 'nothing' }\n",
    )
    .unwrap();
    let log = folder.path().join("a.log");
    let text = "three\ntwo\r\n\r 10%\r 50%\r100%\n\x1b[1mone\x1b[0m\nthree\nthree";
    std::fs::write(&log, text).unwrap();
    let tried = |log: &Path| {
        let output = finish(stagemark().args(["stages", "try"]).arg(&stages).arg(log));
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, said, _) = tried(&log);
    assert_eq!(status, Some(0));
    let row = |said: &str, stage: &str| {
        let joined = said.replace("\n          ", "");
        joined.lines().find(|line| line.trim_start().starts_with(stage)).unwrap_or_default().to_string()
    };
    assert!(said.contains("a.log: 6 lines"), "{said}");
    assert!(row(&said, "half").contains("line 3: 50% [share=50]"), "{said}");
    assert!(row(&said, "both").contains("line 4: ") && row(&said, "both").contains("with line 2"), "{said}");
    assert!(row(&said, "later").contains("line 6: three"), "what came before is not counted: {said}");
    assert!(said.contains("not reached:\n  never") && said.contains("not by a line:\n  mapped"), "{said}");

    // As a run folder keeps it, with times, and as the folder itself; a torn last line is none.
    let kept = "20000000\t5\tstdout\tnewline\ttwo\n1500000000\t\tstderr\treturn\t 50%\n1600000000\t\tstdout\tnewl";
    let run = folder.path().join("run");
    std::fs::create_dir(&run).unwrap();
    std::fs::write(run.join("output.log"), kept).unwrap();
    for path in [run.join("output.log"), run.clone()] {
        let (status, said, _) = tried(&path);
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains(": 2 lines") && row(&said, "half").contains("line 2 at 1.500 s: 50%"), "{said}");
        let on_one_line = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(on_one_line.contains("of it line 1 at 0.020 s"), "{said}");
    }
    std::fs::write(run.join("output.log"), "1\t\tstdout\tnewline\ttwo\nnot a row\n").unwrap();
    let (status, _, error) = tried(&run);
    assert!(status == Some(3) && error.contains("output.log: line 2: "), "{error}");

    // Nothing that matches is a no; a log that is not there is wrong usage.
    std::fs::write(&log, "").unwrap();
    assert_eq!(tried(&log).0, Some(1));
    std::fs::write(&log, [b"\xff\xfe\n".repeat(10), vec![b'x'; 1 << 20]].concat()).unwrap();
    assert_eq!(tried(&log).0, Some(1));
    assert_eq!(tried(&folder.path().join("none")).0, Some(2));
}

#[test]
fn standard_input_is_tried_too() {
    let log = std::fs::File::open(logs().join("vllm.log")).unwrap();
    let output = stagemark().args(["stages", "try", "vllm", "-"]).stdin(log).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("Loading weights took 3.41 seconds"), "{said}");
    assert!(said.contains("[reported_seconds=3.41]"), "{said}");
}

/// A client loads nothing in its own tree: the run says so loudly, and where the prefix belongs; its stages are unknown,
/// whatever it prints.
#[test]
fn a_client_of_a_daemon_or_another_machine_is_told_where_the_prefix_belongs() {
    let folder = folder();
    let cases = [
        ("docker", "run vllm/vllm-openai", "inside the container"),
        ("podman", "run image", "inside the container"),
        ("nerdctl", "run image", "inside the container"),
        ("kubectl", "run server", "in the pod's specification"),
        ("helm", "install server", "in the pod's specification"),
        ("ollama", "run llama3", "in front of `ollama serve`"),
        ("srun", "python serve.py", "in front of the command that each rank runs"),
        ("sbatch", "job.sh", "in the batch script"),
        ("ray", "job submit", "in front of the command that each worker runs"),
        ("ssh", "host serve", "on the serving machine"),
        ("systemctl", "start server", "ExecStart="),
    ];
    let stages = folder.path().join("stages.toml");
    std::fs::write(
        &stages,
        "name = 'mine'\n[[stage]]\nname = 'said'\nwhen = { log = 'loaded' }\n[[stage]]\nname = 'mapped'\n\
         when = { mapping = 'any' }\n[[stage]]\nname = 'exited'\nwhen = { exit = 'any' }\n",
    )
    .unwrap();
    for (program, arguments, place) in cases {
        let path = folder.path().join(program);
        program::script(&path, "#!/bin/sh\necho weights loaded\n");
        let out = folder.path().join(format!("{program}-run"));
        let mut command = stagemark();
        command.args(["run", "--stages"]).arg(&stages).arg("--out").arg(&out).arg("--").arg(&path);
        let output = finish(command.args(arguments.split(' ')));
        let said = String::from_utf8(output.stderr).unwrap().replace("\n  ", " ");
        assert!(output.status.success(), "{said}");
        assert!(said.contains("was seen opened in this process tree"), "{program}: {said}");
        assert!(said.contains(&format!("`{program}` has others do the loading")), "{program}: {said}");
        assert!(said.contains(place), "{program}: {said}");
        let table = std::fs::read_to_string(out.join("stages.csv")).unwrap();
        let status = |stage: &str| {
            let row = table.lines().find(|line| line.starts_with(&format!("{stage},"))).unwrap();
            row.split(',').nth(1).unwrap().to_string()
        };
        assert_eq!((status("said"), status("mapped")), ("unknown".to_string(), "unknown".to_string()), "{program}");
        assert_eq!(status("exited"), "reached", "its own end is its own");
    }
}

#[test]
fn what_cannot_be_tried_says_why_and_what_to_do() {
    let folder = crate::support::folder();
    let path = |name: &str| folder.path().join(name);
    let text = "name = 't'\nargv = ['serve']\nvars = { n = { flag = '-n', default = '2' } }\n\
                [[stage]]\nname = 's'\nwhen = { log = 'x', count = '{n}' }\n";
    std::fs::write(path("stages.toml"), text).unwrap();
    let tried = |log: &std::path::Path, argv: &[&str]| {
        let mut command = stagemark();
        command.args(["stages", "try"]).arg(path("stages.toml")).arg(log);
        if !argv.is_empty() {
            command.arg("--").args(argv);
        }
        let output = finish(&mut command);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        (output.status.code(), said)
    };
    let run = path("run");
    let launched =
        finish(stagemark().args(["run", "--quiet", "--no-output-log", "--out"]).arg(&run).args(["--", "true"]));
    assert!(launched.status.success());
    let (status, said) = tried(&run, &[]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("the run has no output.log") && said.contains("without --no-output-log"), "{said}");
    let (status, said) = tried(folder.path(), &[]);
    assert_eq!(status, Some(2));
    assert!(said.contains("a folder, and not a run folder: expected a log or a run"), "{said}");
    // Reasons have values in them; a command that the file does not fit gives none.
    std::fs::write(path("log"), "x\n").unwrap();
    let (status, said) = tried(&path("log"), &["serve", "-n3"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("needs 3 lines matching /x/") && !said.contains("fits none"), "{said}");
    let (_, said) = tried(&path("log"), &["other", "-n", "3"]);
    assert!(said.contains("needs 2 lines matching /x/"), "{said}");
    assert!(
        said.contains("the command fits none of the file's `argv` (`serve`), and variables have their defaults: n = 2"),
        "{said}"
    );
}
