//! The environment variables that change how a model is loaded or how memory is handed out.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::mask::{MASK, is_secret_name, mask_text};
use crate::event::text_of;

/// The longest value kept, in bytes.
const VALUE_CAP: usize = 4096;

/// Families, by how their names begin.
const PREFIXES: &[&str] = &[
    // Devices and what talks to them.
    "CUDA_",
    "CUBLAS_",
    "CUDNN_",
    "NVIDIA_",
    "NCCL_",
    "UCX_",
    "GLOO_",
    "HIP_",
    "HSA_",
    "ROCR_",
    "ROCM_",
    "MIOPEN_",
    "RCCL_",
    "ZE_",
    "SYCL_",
    "ONEAPI_",
    "ONEDNN_",
    "DNNL_",
    // Where models come from and how they are read.
    "HF_",
    "HUGGINGFACE_",
    "TRANSFORMERS_",
    "SAFETENSORS_",
    "FASTSAFETENSORS_",
    "RUNAI_",
    "TOKENIZERS_",
    "MODELSCOPE_",
    "ACCELERATE_",
    // Engines and frameworks.
    "TORCH",
    "PYTORCH_",
    "TRITON_",
    "VLLM_",
    "SGLANG_",
    "SGL_",
    "LLAMA_",
    "GGML_",
    "OLLAMA_",
    "ORT_",
    "ONNX",
    "TENSORRT",
    "TRTLLM_",
    "TLLM_",
    "XLA_",
    "JAX_",
    "TF_FORCE_",
    "TF_GPU_",
    "TF_XLA_",
    "RAY_",
    // Threads and allocators.
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "BLIS_",
    "NUMEXPR_",
    "MALLOC_",
    "MIMALLOC_",
    "TCMALLOC_",
    "JEMALLOC_",
    "PYTHON",
    // Who started it.
    "SLURM_",
    "OMPI_",
    "PMI_",
    "PMIX_",
    "KUBERNETES_",
    "COSMOS_",
];

/// Single names.
const NAMES: &[&str] = &[
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_BIND_NOW",
    "GLIBC_TUNABLES",
    "_RJEM_MALLOC_CONF",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "PYENV_VERSION",
];

/// This process's environment variables that matter to a launch, secrets masked.
pub fn environment_that_matters() -> BTreeMap<String, String> {
    environment_of(std::env::vars_os())
}

/// The variables that matter of those given, secrets masked. Bytes that are no text, control characters and
/// backslashes are written as [`text_of`] writes them; a value beyond 4 KiB is cut, and says so.
pub fn environment_of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    let matters = |name: &str| NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    variables
        .into_iter()
        .filter_map(|(name, value)| {
            let name = name.to_str().filter(|name| matters(name))?;
            let value = if is_secret_name(name) { MASK.to_owned() } else { bounded(&mask_text(&text_of(value))) };
            Some((name.to_owned(), value))
        })
        .collect()
}

/// Cut after masking: a secret cut in two would no longer look like one.
fn bounded(value: &str) -> String {
    if value.len() <= VALUE_CAP {
        return value.to_owned();
    }
    let end = (0..=VALUE_CAP).rev().find(|&end| value.is_char_boundary(end)).unwrap_or(0);
    format!("{}… (cut, {} bytes)", &value[..end], value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        environment_of(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn what_matters_is_kept_and_the_rest_is_not() {
        let kept = of(&[
            ("CUDA_VISIBLE_DEVICES", "0,1"),
            ("HF_HOME", "/data/hf"),
            ("TORCHINDUCTOR_CACHE_DIR", "/tmp/i"),
            ("PYTHONUNBUFFERED", "1"),
            ("LD_PRELOAD", "libjemalloc.so"),
            ("RANK", "3"),
            ("HOME", "/home/me"),
            ("PATH", "/bin"),
            ("USER", "me"),
            ("CUDA", "x"),
            ("RANKING", "1"),
        ]);
        let names: Vec<&str> = kept.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["CUDA_VISIBLE_DEVICES", "HF_HOME", "LD_PRELOAD", "PYTHONUNBUFFERED", "RANK", "TORCHINDUCTOR_CACHE_DIR"]
        );
        assert_eq!(kept["HF_HOME"], "/data/hf");
    }

    #[test]
    fn secrets_are_masked_by_name_and_by_value() {
        let kept = of(&[
            ("HF_TOKEN", "whatever"),
            ("HUGGINGFACE_HUB_TOKEN", "x"),
            ("VLLM_API_KEY", "1234"),
            ("SGLANG_ADMIN_PASSWORD", "p"),
            ("HF_ENDPOINT", "https://me:pw@mirror.example/hub"),
            ("VLLM_EXTRA", "hf_abcdefghijklmnopqrstuvwxyz012345"),
            ("TOKENIZERS_PARALLELISM", "false"),
            ("VLLM_MAX_TOKENS_PER_EXPERT", "8"),
        ]);
        for name in ["HF_TOKEN", "HUGGINGFACE_HUB_TOKEN", "VLLM_API_KEY", "SGLANG_ADMIN_PASSWORD", "VLLM_EXTRA"] {
            assert_eq!(kept[name], "***", "{name}");
        }
        assert_eq!(kept["HF_ENDPOINT"], "https://***@mirror.example/hub");
        assert_eq!(kept["TOKENIZERS_PARALLELISM"], "false");
        assert_eq!(kept["VLLM_MAX_TOKENS_PER_EXPERT"], "8");
    }

    #[test]
    fn long_and_odd_values() {
        use std::os::unix::ffi::OsStringExt;
        let long = format!("{}é", "a".repeat(VALUE_CAP - 1));
        let value = &of(&[("HF_HOME", &long)])["HF_HOME"];
        assert!(value.ends_with("a… (cut, 4097 bytes)"), "{}", &value[4080..]);
        let odd = environment_of([("HF_HOME".into(), OsString::from_vec(b"/a\xffb\n".to_vec()))]);
        assert_eq!(odd["HF_HOME"], "/a\\xffb\\x0a");
        // The cut would go through the token's middle.
        let hidden = format!("{} hf_abcdefghijklmnopqrstuvwxyz012345", "a".repeat(VALUE_CAP - 10));
        assert!(!of(&[("VLLM_X", &hidden)])["VLLM_X"].contains("hf_"));
    }
}
