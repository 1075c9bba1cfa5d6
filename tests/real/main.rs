//! Loaders that nobody here wrote, under the profiler: torch, safetensors, transformers, torch.distributed.checkpoint,
//! fastsafetensors, Run:ai Model Streamer, ONNX Runtime, mistral.rs, candle, Triton, vLLM and llama.cpp, loading real model
//! files.
//!
//! Ignored in plain `cargo test`, because they need packages. To run them:
//!
//! ```text
//! tests/real/install.sh target/real-loaders               # or only a part: … target/real-loaders torch
//! cargo test --test real -- --ignored --test-threads 1    # or only its tests: … --ignored torch::
//! ```
//!
//! STAGEMARK_REAL_LOADERS names another place that they were installed to. What is missing is a failure. Each test
//! says what must hold on any machine: which bytes are mapped, resident and copied, and what came before what, never
//! how long it took. None waits without an end, and what it launched is gone when it is over.
#![allow(clippy::unwrap_used)]

mod candle;
mod dcp;
#[path = "../suite/folder.rs"]
#[allow(dead_code)]
mod folder;
mod llama;
mod mistralrs;
mod onnxruntime;
mod readers;
mod support;
mod torch;
mod transformers;
mod triton;
mod vllm;
