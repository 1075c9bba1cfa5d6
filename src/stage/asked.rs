//! Conditions that have to be asked: a request, a connection, a file. Each is asked again and again until the answer is
//! the one that was meant; whatever else comes is "not yet".

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::Pattern;
use crate::watch::is_stage_name;

/// Time between two attempts, where none is given.
pub const POLL_NS: u64 = 100_000_000;
/// How long a connection may take.
pub const CONNECT_TIMEOUT_NS: u64 = 1_000_000_000;
/// How long an attempt may take in all.
pub const TIMEOUT_NS: u64 = 30_000_000_000;

/// Text in which `{name}` stands for a variable's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Template(String);

/// The values of a stage file's variables, as far as they are known.
pub type Values = BTreeMap<String, String>;

/// A request that is repeated until its response is acceptable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http {
    pub method: String,
    pub url: Template,
    pub headers: BTreeMap<String, Template>,
    pub body: Option<Body>,
    pub accept: Acceptance,
    /// A certificate file (PEM) to trust in place of the usual authorities.
    pub ca: Option<Template>,
    pub connect_timeout_ns: u64,
    /// From the beginning of an attempt to the last byte of its response.
    pub timeout_ns: u64,
    /// From the end of an attempt to the beginning of the next.
    pub poll_ns: u64,
}

/// What is sent with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// As JSON; `{name}` of a known variable is filled in inside its texts.
    Json(Value),
    /// The bytes of a file.
    File(Template),
}

/// Which response is acceptable: each of these must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acceptance {
    /// One of these.
    pub status: Vec<u16>,
    /// Some header of this name has a value that matches.
    pub headers: BTreeMap<String, Pattern>,
    /// The body matches.
    pub body: Option<Pattern>,
    /// JSON pointers (RFC 6901) that must lead somewhere in the body.
    pub exists: Vec<String>,
    /// JSON pointers that must lead to exactly this.
    pub equals: BTreeMap<String, Value>,
}

/// Requests that stand for the work: all must be accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// SHA-256 of the file that they stand in, in hexadecimal.
    pub file_digest: String,
    pub requests: usize,
    /// How many are in flight at a time.
    pub concurrency: usize,
    /// The requests by their names; not in the normalised form, which has the digest.
    #[serde(skip)]
    pub each: Vec<(String, Http)>,
}

/// A TCP connection that must be accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tcp {
    /// `HOST:PORT`.
    pub address: Template,
    pub connect_timeout_ns: u64,
    pub poll_ns: u64,
}

/// A connection to a Unix socket that must be accepted; a name that begins with `@` is an abstract one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unix {
    pub path: Template,
    pub poll_ns: u64,
}

/// A path that must exist and, where a pattern is given, be a file in whose first 1 MiB it matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIs {
    pub path: Template,
    pub matches: Option<Pattern>,
    pub poll_ns: u64,
}

impl Template {
    pub fn new(text: impl Into<String>) -> Template {
        Template(text.into())
    }

    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The variables in it.
    pub fn names(&self) -> BTreeSet<&str> {
        pieces(&self.0).filter_map(|piece| piece.err()).collect()
    }

    /// With the values in their places; the error is the name of a variable that has none.
    pub fn fill(&self, values: &Values) -> Result<String, String> {
        pieces(&self.0)
            .map(|piece| match piece {
                Ok(text) => Ok(text.to_string()),
                Err(name) => values.get(name).cloned().ok_or_else(|| name.to_string()),
            })
            .collect()
    }

    /// The same for a host or a URL: an address that means every address of this machine is asked at its loopback, and
    /// one of IPv6 stands in brackets.
    pub fn fill_address(&self, values: &Values) -> Result<String, String> {
        let hosts = values.iter().map(|(name, value)| {
            let value = match value.trim_start_matches('[').trim_end_matches(']').parse() {
                Ok(std::net::IpAddr::V4(address)) if address.is_unspecified() => "127.0.0.1".to_string(),
                Ok(std::net::IpAddr::V6(address)) if address.is_unspecified() => "[::1]".to_string(),
                Ok(std::net::IpAddr::V6(address)) => format!("[{address}]"),
                _ => value.clone(),
            };
            (name.clone(), value)
        });
        self.fill(&hosts.collect())
    }

    /// With the values that there are; what is no variable stays as it is.
    pub fn fill_known(&self, values: &Values) -> String {
        fill_known(&self.0, values)
    }
}

/// Fills in what is known, and leaves every other brace as it is.
pub fn fill_known(text: &str, values: &Values) -> String {
    pieces(text)
        .map(|piece| match piece {
            Ok(text) => text.to_string(),
            Err(name) => values.get(name).cloned().unwrap_or_else(|| format!("{{{name}}}")),
        })
        .collect()
}

/// Fills in what is known in every text of a JSON value.
pub fn fill_json(value: &Value, values: &Values) -> Value {
    match value {
        Value::String(text) => Value::String(fill_known(text, values)),
        Value::Array(items) => Value::Array(items.iter().map(|item| fill_json(item, values)).collect()),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, item)| (key.clone(), fill_json(item, values))).collect())
        }
        other => other.clone(),
    }
}

/// A path, `~/` being the home directory.
pub fn at_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    }
}

/// Why a file that is needed is not at hand, if it is not.
pub fn lacking(path: &Path) -> Option<String> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => None,
        Ok(_) => Some("no regular file".to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// Plain text, and the names that stand in braces.
fn pieces(text: &str) -> impl Iterator<Item = Result<&str, &str>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let name_at = |open: usize| {
            let name = rest[open + 1..].split_once('}')?.0;
            is_stage_name(name).then_some(name)
        };
        let mut next = rest.match_indices('{').filter_map(|(open, _)| Some((open, name_at(open)?)));
        match next.next() {
            Some((0, name)) => {
                rest = &rest[name.len() + 2..];
                Some(Err(name))
            }
            Some((open, _)) => {
                let (before, after) = rest.split_at(open);
                rest = after;
                Some(Ok(before))
            }
            None => Some(Ok(std::mem::take(&mut rest))),
        }
    })
}

impl Http {
    /// A request of this kind with every default.
    pub fn to(url: impl Into<String>) -> Http {
        Http {
            method: "GET".to_string(),
            url: Template::new(url),
            headers: BTreeMap::new(),
            body: None,
            accept: Acceptance {
                status: vec![200],
                headers: BTreeMap::new(),
                body: None,
                exists: Vec::new(),
                equals: BTreeMap::new(),
            },
            ca: None,
            connect_timeout_ns: CONNECT_TIMEOUT_NS,
            timeout_ns: TIMEOUT_NS,
            poll_ns: POLL_NS,
        }
    }

    /// Host and port, as they stand in the URL.
    pub fn authority(&self) -> &str {
        let url = self.url.as_str();
        url.split_once("://").map_or("", |(_, rest)| rest).split(['/', '?', '#']).next().unwrap_or_default()
    }

    /// The variables without which it cannot be sent.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        let files = self.files().into_iter().map(|(_, path)| path);
        [&self.url].into_iter().chain(files).flat_map(Template::names).collect()
    }

    /// The files that are needed to ask it, each with its key.
    pub fn files(&self) -> Vec<(&'static str, &Template)> {
        let body = match &self.body {
            Some(Body::File(path)) => Some(("body_file", path)),
            _ => None,
        };
        body.into_iter().chain(self.ca.iter().map(|path| ("ca", path))).collect()
    }
}

impl Acceptance {
    /// Whether a response is acceptable; the error says what is not so, in one line.
    pub fn judge<'h>(
        &self,
        status: u16,
        headers: impl Iterator<Item = (&'h str, &'h [u8])> + Clone,
        body: &[u8],
    ) -> Result<(), String> {
        if !self.status.contains(&status) {
            return Err(format!("status {status}"));
        }
        for (name, pattern) in &self.headers {
            let mut of_name = headers.clone().filter(|(other, _)| other.eq_ignore_ascii_case(name));
            if !of_name.any(|(_, value)| pattern.regex().is_match(value)) {
                return Err(format!("status {status}, and no header {name} matches {pattern:?}"));
            }
        }
        if let Some(pattern) = &self.body
            && !pattern.regex().is_match(body)
        {
            return Err(format!("status {status}, and the body does not match {pattern:?}"));
        }
        if self.exists.is_empty() && self.equals.is_empty() {
            return Ok(());
        }
        let json: Value =
            serde_json::from_slice(body).map_err(|_| format!("status {status}, and the body is no JSON"))?;
        if let Some(pointer) = self.exists.iter().find(|pointer| json.pointer(pointer).is_none()) {
            return Err(format!("status {status}, and the body has no {pointer}"));
        }
        match self.equals.iter().find(|(pointer, wanted)| json.pointer(pointer) != Some(wanted)) {
            Some((pointer, wanted)) => Err(format!("status {status}, and the body's {pointer} is not {wanted}")),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an acceptable response to {} {}", self.method, self.url.as_str())
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "acceptable responses to {} requests, {} at a time", self.requests, self.concurrency)
    }
}

impl fmt::Display for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a connection to {}", self.address.as_str())
    }
}

impl fmt::Display for Unix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a connection to {}", self.path.as_str())
    }
}

impl fmt::Display for FileIs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.matches {
            None => write!(f, "the file {}", self.path.as_str()),
            Some(pattern) => write!(f, "{pattern:?} in the file {}", self.path.as_str()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn templates_are_filled() {
        let url = Template::new("http://{host}:{port}/x?{\"a\": 1}&{}");
        assert_eq!(url.names().into_iter().collect::<Vec<_>>(), ["host", "port"]);
        let known = values(&[("port", "80"), ("host", "::")]);
        assert_eq!(url.fill_address(&known).unwrap(), "http://[::1]:80/x?{\"a\": 1}&{}");
        assert_eq!(url.fill(&values(&[("port", "80")])), Err("host".to_string()));
        assert_eq!(url.fill_known(&values(&[("host", "h")])), "http://h:{port}/x?{\"a\": 1}&{}");
        let any = Template::new("{host}:1");
        assert_eq!(any.fill_address(&values(&[("host", "0.0.0.0")])).unwrap(), "127.0.0.1:1");
        assert_eq!(any.fill_address(&values(&[("host", "fe80::1")])).unwrap(), "[fe80::1]:1");
        let body = fill_json(&json!({ "a": ["{host}", "{b}", 1] }), &values(&[("host", "h")]));
        assert_eq!(body, json!({ "a": ["h", "{b}", 1] }));
        for odd in ["", "{", "}", "{{}}", "{a", "a}{", "{ä}", "{{a}}"] {
            assert_eq!(Template::new(odd).fill_known(&Values::new()), odd);
        }
    }

    #[test]
    fn a_response_is_judged_by_everything_that_was_said() {
        let mut accept = Http::to("x").accept;
        let headers = [("Content-Type", &b"application/json"[..]), ("content-type", b"x")];
        let judge = |accept: &Acceptance, status, body: &str| {
            accept.judge(status, headers.iter().copied(), body.as_bytes()).map_err(|why| why.to_string())
        };
        assert_eq!(judge(&accept, 200, ""), Ok(()));
        assert_eq!(judge(&accept, 503, ""), Err("status 503".into()));
        accept.status.push(204);
        assert_eq!(judge(&accept, 204, ""), Ok(()));
        accept.headers.insert("content-TYPE".into(), Pattern::new("json").unwrap());
        accept.body = Some(Pattern::new("\"text\"").unwrap());
        assert_eq!(judge(&accept, 200, "{}"), Err("status 200, and the body does not match /\"text\"/".into()));
        accept.exists.push("/choices/0/text".into());
        accept.equals.insert("/done".into(), json!(true));
        assert_eq!(judge(&accept, 200, "\"text\", no"), Err("status 200, and the body is no JSON".into()));
        let wrong = "{\"choices\":[{\"text\":null}],\"done\":1}";
        assert_eq!(judge(&accept, 200, wrong), Err("status 200, and the body's /done is not true".into()));
        assert_eq!(judge(&accept, 200, "{\"choices\":[{\"text\":null}],\"done\":true}"), Ok(()));
        accept.headers.insert("x-none".into(), Pattern::new("").unwrap());
        assert!(judge(&accept, 200, wrong).unwrap_err().contains("no header x-none"));
        assert!(accept.judge(200, headers.iter().copied(), b"\xff").is_err());
    }
}
