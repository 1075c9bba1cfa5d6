//! Secrets taken out of what is kept: command lines, environment variables, lines of a log.
//!
//! Two things give a secret away: the name beside it (`--api-key`, `HF_TOKEN=`, `Authorization:`), and its own form
//! (`hf_…`, a password in a URL). Names are judged by whole words, since a launch is full of names that only resemble
//! secrets: `--tokenizer`, `--max-tokens`, `--key-cache-dtype`. This is a net, not a proof: a secret in a form of its
//! own, under a name that says nothing, passes.

use std::borrow::Cow;
use std::path::Path;
use std::sync::LazyLock;

use regex::{Captures, Regex, RegexSet};

/// What stands in a secret's place.
pub const MASK: &str = "***";

/// An argument vector with secrets masked: `--api-key VALUE`, `--token=VALUE`, `HF_TOKEN=VALUE`, headers, and whatever
/// [`mask_text`] finds, so that a shell's `-c` string is covered as far as patterns go.
pub fn mask_argv(argv: &[String]) -> Vec<String> {
    let program = argv.first().and_then(|program| Path::new(program).file_name()).and_then(|name| name.to_str());
    // vLLM takes any number of keys after one `--api-key`.
    let many_keys = argv.iter().any(|argument| argument.contains("vllm"));
    let mut masked = Vec::with_capacity(argv.len());
    let mut secret_follows = false;
    let mut flag = "";
    let mut previous = "";
    for argument in argv {
        let is_flag =
            argument.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c == '-' || c.is_alphabetic()));
        if secret_follows && !is_flag {
            masked.push(MASK.to_owned());
            secret_follows = many_keys && flag == "--api-key";
        } else {
            secret_follows = is_flag && is_secret_name(argument) && !argument.contains('=');
            flag = argument;
            masked.push(mask_argument(argument, previous, program));
        }
        previous = argument;
    }
    masked
}

fn mask_argument(argument: &str, previous: &str, program: Option<&str>) -> String {
    // The whole rest of `--token=…` is the secret, whatever stands in it.
    if let Some((name, value)) = argument.split_once('=')
        && !value.is_empty()
        && name.trim_start_matches('-').chars().all(|c| c.is_alphanumeric() || "_.-".contains(c))
        && is_secret_name(name)
        && is_secret_assignment(name, value)
    {
        return format!("{name}={MASK}");
    }
    if matches!(previous, "-H" | "--header")
        && let Some((name, _)) = argument.split_once(':')
        && is_secret_name(name)
    {
        return format!("{name}: {MASK}");
    }
    if program == Some("curl")
        && matches!(previous, "-u" | "--user" | "--proxy-user")
        && let Some((user, _)) = argument.split_once(':')
    {
        return format!("{user}:{MASK}");
    }
    mask_text(argument).into_owned()
}

/// A text with the secrets in it masked, as far as names and forms give them away. Borrowed where nothing is.
pub fn mask_text(text: &str) -> Cow<'_, str> {
    // Most lines have none of these, and one pass says so.
    static HINT: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)token|secret|passw|passphrase|key|auth|credential|cookie|sig|bearer|hf_|sk-|gh[opsur]_|github_pat_|glpat-|nvapi-|xox|akia|asia|aiza|eyj|://",
        )
    });
    static FLAG: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r#"(?:^|[\s"'(\[,=])(?<name>--?[A-Za-z][A-Za-z0-9_.-]*)(?<gap>["']?\s*,\s*["']|\s+["']?|=["']?)"#)
    });
    static PAIR: LazyLock<Regex> =
        LazyLock::new(|| pattern(r#"(?<name>[A-Za-z_][A-Za-z0-9_.-]*)(?<gap>["']?\s*:\s*\[?["']|=\[?["']?)"#));
    // Prose and YAML: only what is hardly ever followed by anything else.
    static PROSE: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r#"(?i)\b(?<name>password|passwd|passphrase|secret|api[ _-]?key|(?:access|api|auth|hf)[ _-]token)(?<gap>\s*:\s*["']?)"#,
        )
    });
    if !HINT.is_match(text) {
        return Cow::Borrowed(text);
    }
    let mut text = Cow::Borrowed(text);
    // Most of these are in no line at all: which are is found in one pass.
    for form in FORM_SET.matches(&text).into_iter().map(|index| &FORMS[index]) {
        replace(&mut text, &form.regex, |found| {
            let whole = &found[0];
            if form.needs_digit && !whole.bytes().any(|byte| byte.is_ascii_digit()) {
                return whole.to_owned();
            }
            format!(
                "{}{MASK}{}",
                found.name("before").map_or("", |m| m.as_str()),
                found.name("after").map_or("", |m| m.as_str())
            )
        });
    }
    mask_after(&mut text, &FLAG, |_, rest| !rest.starts_with('-'));
    mask_after(&mut text, &PAIR, is_secret_assignment);
    mask_after(&mut text, &PROSE, is_secret_assignment);
    text
}

/// A secret that its own form gives away.
struct Form {
    regex: Regex,
    /// Whether only a match with a digit counts: words joined by hyphens can look alike.
    needs_digit: bool,
}

static FORMS: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let form = |text, needs_digit| Form { regex: pattern(text), needs_digit };
    vec![
        form(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", false),
        form(
            r#"(?i)(?<before>\b(?:(?:proxy-)?authorization|x-api-key|api-key|x-auth-token|set-cookie|cookie)["']?\s*:\s*["']?)[^"'\r\n]+"#,
            false,
        ),
        form(r#"(?i)(?<before>\bbearer\s+)[A-Za-z0-9._~+/-]{8,}=*"#, true),
        // The password may have an unescaped @ in it: the last one before the path ends it.
        form(r#"(?i)(?<before>\b[a-z][a-z0-9+.-]*://)[^\s/@:'"]*:[^\s/'"]*(?<after>@)"#, false),
        form(r"\bhf_[A-Za-z0-9]{16,}", false),
        form(r"\bsk-[A-Za-z0-9_-]{20,}", true),
        form(r"\bgh[opsur]_[A-Za-z0-9]{20,}", false),
        form(r"\bgithub_pat_[A-Za-z0-9_]{20,}", false),
        form(r"\bglpat-[A-Za-z0-9_-]{20,}", false),
        form(r"\bnvapi-[A-Za-z0-9_-]{20,}", false),
        form(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}", true),
        form(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", false),
        form(r"\bAIza[0-9A-Za-z_-]{35}", false),
        form(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", false),
    ]
});

static FORM_SET: LazyLock<RegexSet> = LazyLock::new(|| {
    RegexSet::new(FORMS.iter().map(|form| form.regex.as_str())).expect("each of them is a pattern by itself")
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a fixed pattern, compiled by every test of this room")
}

fn replace(text: &mut Cow<'_, str>, regex: &Regex, with: impl Fn(&Captures) -> String) {
    if let Cow::Owned(replaced) = regex.replace_all(text, |found: &Captures| with(found))
        && replaced != **text
    {
        *text = Cow::Owned(replaced);
    }
}

/// Masks the value after each secret name for which `secret(name, rest of the text)` allows it; that looks at a few
/// characters of the rest at most. The pattern ends before the value, and the search goes on after the name: values
/// can hold further names, and a long row of them must not be read again for each.
fn mask_after(text: &mut Cow<'_, str>, regex: &Regex, secret: impl Fn(&str, &str) -> bool) {
    let mut masked = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = regex.captures_at(text, at) {
        let (Some(name), Some(gap)) = (found.name("name"), found.name("gap")) else { break };
        at = name.end();
        let start = gap.end();
        if !is_secret_name(name.as_str()) || !secret(name.as_str(), &text[start..]) {
            continue;
        }
        let end = start + value_length(&text[start..], gap.as_str().chars().next_back());
        if end > start && &text[start..end] != MASK {
            masked.push_str(&text[copied..start]);
            masked.push_str(MASK);
            (copied, at) = (end, end);
        }
    }
    if copied > 0 {
        masked.push_str(&text[copied..]);
        *text = Cow::Owned(masked);
    }
}

/// How long a value is: to its closing quote, or to where a shell, a URL or a printed structure would end it.
fn value_length(text: &str, last_of_gap: Option<char>) -> usize {
    match last_of_gap {
        Some(quote @ ('"' | '\'')) => {
            let mut escaped = false;
            let end = text.find(|c| {
                let ends = c == quote && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            end.unwrap_or(text.len())
        }
        _ => {
            let end = text.find(|c: char| c.is_whitespace() || "\"';|&)]}".contains(c)).unwrap_or(text.len());
            text[..end].trim_end_matches(',').len()
        }
    }
}

/// Whether what follows a secret name and `=` is a secret. In running text a lone small `key=` is a key of a table, and
/// a number beside `token` is a figure; a flag or a name in capitals means what it says.
fn is_secret_assignment(name: &str, rest: &str) -> bool {
    let plain = last_part(name).trim_start_matches('-');
    let said_aloud = name.starts_with('-') || plain.chars().all(|c| !c.is_lowercase());
    said_aloud || (plain != "key" && !is_figure(rest))
}

/// Whether a text begins with `0.5`, `30ms`, `12,288`, `None`, `true` and then ends or goes on to something else.
fn is_figure(text: &str) -> bool {
    static FIGURE: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r#"^(?i:[+-]?[0-9][0-9.,]{0,30}(?:[a-zµ%/]{1,4})?|none|null|true|false)(?:$|[\s"';|&)\]},])"#)
    });
    FIGURE.is_match(text)
}

/// Whether a variable, flag or field of this name holds a secret, by whole words: `HF_TOKEN`, `--api-key`, `apiKey`,
/// and not `--tokenizer`, `--max-tokens`, `--eos-token-id`, `--key-cache-dtype`.
pub fn is_secret_name(name: &str) -> bool {
    /// What a word after the secret one makes of it: a measure, a kind or a place of it, and not the thing itself.
    const ABOUT: &[&str] = &[
        "BUDGET",
        "CACHE",
        "COUNT",
        "DIM",
        "DIR",
        "DTYPE",
        "EMBEDDING",
        "EMBEDDINGS",
        "ENABLED",
        "FILE",
        "HEAD",
        "HEADS",
        "IDS",
        "INDEX",
        "LAYOUT",
        "LEN",
        "LENGTH",
        "LIMIT",
        "MODE",
        "NORM",
        "PATH",
        "PER",
        "RATE",
        "RATIO",
        "SIZE",
        "STRATEGY",
        "TIMEOUT",
        "TYPE",
        "USAGE",
    ];
    /// Tokens of a vocabulary, and switches about real ones.
    const VOCABULARY: &[&str] = &[
        "BOS", "CLS", "EOS", "EOT", "FIRST", "IMAGE", "AUDIO", "VIDEO", "IMPLICIT", "MASK", "NEXT", "PAD", "PER",
        "SEP", "SPECIAL", "STOP", "THINK", "UNK",
    ];
    const KINDS_OF_KEY: &[&str] = &["CACHE", "FOREIGN", "LOOKUP", "PARTITION", "PRIMARY", "PUBLIC", "SORT"];
    const SWITCHES: &[&str] = &["ALLOW", "DISABLE", "ENABLE", "NO", "REQUIRE", "SKIP"];

    /// No name is longer; such a thing is data.
    const LONGEST: usize = 256;
    if name.len() > LONGEST {
        return false;
    }
    let words = words(last_part(name));
    words.iter().enumerate().any(|(at, word)| {
        let before = at.checked_sub(1).map_or("", |before| &words[before]);
        let after = &words[at + 1..];
        if after.iter().any(|word| ABOUT.contains(&word.as_str())) {
            return false;
        }
        match word.as_str() {
            "TOKEN" => !VOCABULARY.contains(&before) && after.first().is_none_or(|word| word != "ID"),
            "KEY" | "KEYS" => !KINDS_OF_KEY.contains(&before) && (word == "KEY" || before == "API"),
            "AUTH" => !words.first().is_some_and(|first| SWITCHES.contains(&first.as_str())),
            "AUTHORIZATION" | "COOKIE" | "CREDENTIAL" | "CREDENTIALS" | "PASSPHRASE" | "PASSWD" | "PASSWORD"
            | "SECRET" | "SECRETS" | "SIG" | "SIGNATURE" => true,
            glued => ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "APIKEY", "ACCESSKEY", "PRIVATEKEY", "SECRETKEY"]
                .iter()
                .any(|word| glued.ends_with(word)),
        }
    })
}

/// Of `config.api_key` the last part; `self_attn.key.weight` is a tensor's name.
fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The words of `SOME_NAME`, `some-name`, `someName`, in capitals.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for character in name.chars() {
        if !character.is_alphanumeric() || (was_small && character.is_uppercase()) {
            words.push(String::new());
        }
        if character.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(character.to_uppercase());
        }
        was_small = character.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn argv(line: &[&str]) -> Vec<String> {
        mask_argv(&line.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    }

    const HF: &str = "hf_abcdefghijklmnopqrstuvwxyzABCDEF12";

    #[test]
    fn flags_lose_their_secrets() {
        assert_eq!(
            argv(&["server", "--api-key", "abc", "--token=x y", "--port", "8000", "--hf-token", "t", "--model", "m"]),
            ["server", "--api-key", "***", "--token=***", "--port", "8000", "--hf-token", "***", "--model", "m"]
        );
        assert_eq!(argv(&["s", "--token", "--model", "m"]), ["s", "--token", "--model", "m"], "no value was given");
        assert_eq!(argv(&["env", "HF_TOKEN=abc", "HF_HOME=/x", "s"]), ["env", "HF_TOKEN=***", "HF_HOME=/x", "s"]);
        assert_eq!(argv(&["s", "-token", "12345"]), ["s", "-token", "***"]);
        assert_eq!(
            argv(&["vllm", "serve", "m", "--api-key", "one", "two", "--port", "1"]),
            ["vllm", "serve", "m", "--api-key", "***", "***", "--port", "1"]
        );
        assert_eq!(argv(&["s", "--api-key", "one", "model"]), ["s", "--api-key", "***", "model"]);
    }

    #[test]
    fn headers_and_curl_users() {
        assert_eq!(
            argv(&["curl", "-H", "Authorization: Bearer x", "-H", "X-My-Secret: y", "-H", "Accept: z", "-u", "me:pw"]),
            ["curl", "-H", "Authorization: ***", "-H", "X-My-Secret: ***", "-H", "Accept: z", "-u", "me:***"]
        );
        assert_eq!(argv(&["docker", "run", "-u", "1000:1000"])[3], "1000:1000");
    }

    #[test]
    fn names_that_only_resemble_secrets_stay() {
        let harmless = [
            "python",
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            "meta-llama/Llama-3.1-8B-Instruct",
            "--tokenizer",
            "/models/tok",
            "--tokenizer-mode",
            "auto",
            "--max-tokens",
            "5",
            "--key-cache-dtype",
            "fp8",
            "--max-num-batched-tokens",
            "8192",
            "--image-token-id",
            "32000",
            "--eos-token",
            "</s>",
            "--ssl-keyfile",
            "/k.pem",
            "--api-key-file",
            "/run/k",
            "--author",
            "me",
            "--monkey",
            "bars",
            "--enable-auth",
            "model",
            "--override-kv",
            "tokenizer.ggml.add_bos_token=bool:false",
            "--hf-repo",
            "org/hf_model_keys-q4",
            "--served-model-name",
            "sk-learn-random-forest-classifier",
            "--keys",
            "a",
            "task-12345678901234567890",
            "s3://bucket/token/key",
            "ssh://git@host/repo",
            "--sort-key",
            "name",
            "--override-kv=key=int:5",
            "--max-total-tokens=4096",
            "--disable-key-norm",
            "model-2",
        ];
        assert_eq!(argv(&harmless), harmless);
    }

    #[test]
    fn secrets_known_by_their_form() {
        for secret in [
            HF,
            "sk-proj-abc123abc123abc123abc",
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "github_pat_11ABCDEFG0123456789_abcdef",
            "glpat-abcdefghij0123456789",
            "nvapi-abcdefghijklmnopqrstuvwxyz",
            "AKIAIOSFODNN7EXAMPLE",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.c2lnbmF0dXJl",
        ] {
            assert_eq!(mask_text(&format!("got {secret}, go on")), "got ***, go on", "{secret}");
            assert_eq!(argv(&["x", secret]), ["x", "***"]);
        }
        assert_eq!(mask_text("using Bearer abc123def456"), "using Bearer ***");
        assert_eq!(mask_text("Bearer authentication is on"), "Bearer authentication is on");
        assert_eq!(mask_text("get https://me:p@ss@host:80/a?b=1 now"), "get https://***@host:80/a?b=1 now");
        assert_eq!(mask_text("s3://b/x?X-Amz-Signature=0a1b2c&part=2"), "s3://b/x?X-Amz-Signature=***&part=2");
        let pem = "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----";
        assert_eq!(mask_text(&format!("a {pem} b")), "a *** b");
    }

    #[test]
    fn shell_strings_and_printed_structures() {
        assert_eq!(
            argv(&["sh", "-c", "export HF_TOKEN=abc; exec serve --verbose --api-key 'a b' --model m --token=c"]),
            ["sh", "-c", "export HF_TOKEN=***; exec serve --verbose --api-key '***' --model m --token=***"]
        );
        assert_eq!(
            mask_text(r#"curl -H "Authorization: Bearer q" http://h:80/"#),
            r#"curl -H "Authorization: ***" http://h:80/"#
        );
        assert_eq!(mask_text("docker run -e HF_TOKEN=abc img"), "docker run -e HF_TOKEN=*** img");
        assert_eq!(
            mask_text("args: {'api_key': ['abc'], 'model': 'm', \"authToken\": \"d\"}"),
            "args: {'api_key': ['***'], 'model': 'm', \"authToken\": \"***\"}"
        );
        assert_eq!(
            mask_text("Namespace(api_key=abc, tokenizer='t', hf_token=None)"),
            "Namespace(api_key=***, tokenizer='t', hf_token=None)"
        );
        assert_eq!(mask_text("['--api-key', 'abc', '--port', '1']"), "['--api-key', '***', '--port', '1']");
        assert_eq!(mask_text(r#"{"token": "a\"b", "n": 1} x"#), r#"{"token": "***", "n": 1} x"#);
        assert_eq!(mask_text("config.api_key=abc, password: \"a b\"."), "config.api_key=***, password: \"***\".");
        assert_eq!(mask_text("the API key: abc, hf_token: abc"), "the API key: ***, hf_token: ***");
        assert_eq!(mask_text("opts=a=b=api_key=abc x"), "opts=a=b=api_key=*** x");
    }

    #[test]
    fn a_log_keeps_its_figures() {
        for line in [
            "Loading weights took 3.54 seconds",
            "prompt: 5 tokens, time per token=30ms, first token=0.5s",
            "llama_model_loader: - kv 3: tokenizer.ggml.eos_token_id u32 = 2",
            "GET http://127.0.0.1:8000/v1/models 200",
            "loading key=blk.0.attn_k.weight",
            "model.layers.0.self_attn.key.weight=ok key_proj=5 cls_token=torch.Size([1])",
            "You are using a model without a HF_TOKEN. Please set a HF_TOKEN",
            "The token has not been saved to the git credentials helper.",
            "num_key_value_heads=8 key_length=128 kv_cache_key=abc",
            "Token generation: 12 t/s; author: me",
            "api_key=None token=True",
        ] {
            assert!(matches!(mask_text(line), Cow::Borrowed(same) if same == line), "{line}: {}", mask_text(line));
        }
    }

    #[test]
    fn long_lines_of_names_are_no_burden() {
        let line = "a=".repeat(200_000) + "token=" + HF;
        assert!(mask_text(&line).ends_with("token=***"));
        for part in [
            "token=",
            "key=",
            "--token=",
            "--key ",
            "key_",
            "token=1 ",
            "'key': '",
            "https://a:",
            "secret: ",
            "'token': '\\\\",
        ] {
            let line = part.repeat(30_000);
            assert!(mask_text(&line).len() <= 2 * line.len(), "{part}");
        }
    }

    proptest! {
        #[test]
        fn masking_is_total_and_settles(text in "[-a-zA-Z_=:/@'\" ,;é]{0,60}(token|--api-key|KEY|https://)?[-a-zA-Z0-9=:/@'\" ,é]{0,40}") {
            let once = mask_text(&text).into_owned();
            prop_assert_eq!(mask_text(&once).into_owned(), once);
        }

        #[test]
        fn a_flags_secret_never_survives(secret in "[A-Za-z0-9+/=.]{6,40}") {
            let masked = argv(&["serve", "--api-key", &secret, &format!("--token={secret}"), &format!("HF_TOKEN={secret}")]);
            prop_assert!(masked.iter().all(|argument| !argument.contains(&secret)));
            let shell = format!("serve --api-key {secret} --model m");
            prop_assert_eq!(mask_text(&shell), "serve --api-key *** --model m");
        }
    }
}
