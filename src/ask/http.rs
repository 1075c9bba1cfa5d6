//! Requests: to the one URL that a stage file names, through no proxy, following no redirect.

use std::fmt::Write;
use std::io::Read;
use std::time::Duration;

use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Error, Timeout};

use super::connect::no_value;
use super::{Attempt, MOST_KEPT, MOST_MATCHED, words};
use crate::clock::Mono;
use crate::host::mask::{MASK, is_secret_name, mask_text};
use crate::stage::asked::{self, Body, Template, Values, at_home, fill_json};

/// Largest file that is sent with a request, in bytes.
const LARGEST_BODY: u64 = 64 << 20;
/// Largest certificate file.
const LARGEST_CA: u64 = 4 << 20;
/// Shortest secret that is looked for in what is kept: shorter ones are in any text.
const SHORTEST_SECRET: usize = 4;

/// What goes with each request and into no file. Shown, it is only how much there is.
#[derive(Clone, Default)]
pub struct Secrets {
    headers: Vec<(String, String)>,
    words: Vec<String>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} headers", self.headers.len())
    }
}

impl Secrets {
    /// From `HEADER=VARIABLE`, or `VARIABLE` for `Authorization: Bearer` with it.
    ///
    /// # Errors
    /// A sentence that holds no secret: a header that cannot be, a variable that is not set.
    pub fn from_environment(
        asked: &[String],
        variable: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<Secrets, String> {
        let mut secrets = Secrets::default();
        for text in asked {
            let (header, name, bearer) = match text.split_once('=') {
                Some((header, name)) => (header, name, false),
                None => ("Authorization", text.as_str(), true),
            };
            if ureq::http::HeaderName::from_bytes(header.as_bytes()).is_err() {
                return Err(format!("`{header}` cannot be a header's name; expected HEADER=VARIABLE"));
            }
            let value = variable(name).filter(|value| !value.is_empty());
            let value = value.ok_or_else(|| format!("the environment variable `{name}` is not set"))?;
            let value = value.into_string().map_err(|_| format!("the environment variable `{name}` is not UTF-8"))?;
            // A file's last line end, as `$(cat …)` takes it off.
            let value = value.trim_end_matches(['\r', '\n']);
            if value.chars().any(char::is_control) {
                return Err(format!("the environment variable `{name}` holds what no header can"));
            }
            // The scheme before it is no secret.
            let word = value.rsplit_once(' ').map_or(value, |(_, word)| word);
            secrets.words.extend([value, word].into_iter().flat_map(ways_of_writing));
            let value = if bearer { format!("Bearer {value}") } else { value.to_string() };
            secrets.headers.push((header.to_string(), value));
        }
        secrets.words.retain(|word| word.len() >= SHORTEST_SECRET);
        // The longer ones first: a shorter one may be a part of them.
        secrets.words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        secrets.words.dedup();
        Ok(secrets)
    }

    /// The length in bytes of the longest of them.
    fn longest(&self) -> usize {
        self.words.first().map_or(0, String::len)
    }

    /// A text without them, nor what looks like one.
    pub fn clean(&self, text: &str) -> String {
        let without = self.words.iter().fold(text.to_string(), |text, word| text.replace(word, MASK));
        mask_text(&without).into_owned()
    }
}

/// A secret as a server may send it back: as it is, in JSON, in a URL, and what a name and a password are in base64.
fn ways_of_writing(secret: &str) -> Vec<String> {
    let json = serde_json::Value::from(secret).to_string();
    let json = json.trim_start_matches('"').strip_suffix('"').unwrap_or_default().to_string();
    let escaped = |upper: bool| {
        let mut text = String::new();
        for byte in secret.bytes() {
            match byte {
                b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' | b'_' | b'~' => text.push(byte.into()),
                byte if upper => text.push_str(&format!("%{byte:02X}")),
                byte => text.push_str(&format!("%{byte:02x}")),
            }
        }
        text
    };
    let mut ways = vec![secret.to_string(), json.replace('/', "\\/"), json, escaped(true), escaped(false)];
    if let Some(pair) = from_base64(secret).filter(|pair| pair.contains(':')) {
        ways.extend(pair.split_once(':').map(|(_, password)| password.to_string()));
        ways.push(pair);
    }
    ways
}

/// The text that is meant by base64 (RFC 4648), if it is one.
fn from_base64(text: &str) -> Option<String> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut held, mut bytes) = (0u32, 0, Vec::new());
    for letter in text.trim_end_matches('=').bytes() {
        let value = LETTERS.iter().position(|known| *known == letter)?;
        bits = (bits << 6) | value as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    String::from_utf8(bytes).ok().filter(|text| !text.is_empty() && !text.chars().any(char::is_control))
}

/// How far a body was read.
#[derive(Default)]
struct BodyRead {
    first_byte: Option<Mono>,
    bytes: Option<u64>,
    is_cut: bool,
}

/// A request, ready to be sent again and again.
pub(super) struct Request<'a> {
    of: &'a asked::Http,
    values: &'a Values,
    secrets: &'a Secrets,
    url: String,
    host: String,
    /// Made with the first attempt at which its certificates can be read.
    agent: Option<Agent>,
}

impl<'a> Request<'a> {
    pub fn of(http: &'a asked::Http, values: &'a Values, secrets: &'a Secrets) -> Result<Request<'a>, String> {
        let url = http.url.fill_address(values).map_err(no_value)?;
        // A value with one of these in it would make another host of what stood before it, or another path.
        let authority = Template::new(http.authority()).fill_address(values).map_err(no_value)?;
        if authority.contains(['/', '?', '#', '@', '\\']) {
            return Err("no URL: a variable's value makes another one of it".to_string());
        }
        let parsed = url.parse::<ureq::http::Uri>().map_err(|error| format!("no URL: {error}"))?;
        let host = parsed.host().ok_or("no host in the URL")?.to_string();
        Ok(Request { of: http, values, secrets, url, host, agent: None })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn tells_a_secret_in_clear(&self) -> bool {
        !self.secrets.headers.is_empty() && self.url.starts_with("http:")
    }

    pub fn poll(&self) -> Duration {
        Duration::from_nanos(self.of.poll_ns)
    }

    /// `heard` is called when the head of a response is there.
    pub fn attempt(&mut self, heard: &dyn Fn()) -> Attempt {
        let agent = match self.agent() {
            Ok(agent) => agent,
            Err(wrong) => return Attempt::not_yet(wrong),
        };
        let mut read = BodyRead::default();
        let answer = self.exchange(&agent, heard, &mut read);
        let BodyRead { first_byte, bytes, is_cut } = read;
        match answer {
            Ok(response) => Attempt { wrong: None, first_byte, bytes, is_cut, response: Some(response) },
            Err(wrong) => Attempt { wrong: Some(wrong), first_byte, bytes, is_cut, response: None },
        }
    }

    fn agent(&mut self) -> Result<Agent, String> {
        if let Some(agent) = &self.agent {
            return Ok(agent.clone());
        }
        let mut tls = TlsConfig::builder();
        if let Some(ca) = &self.of.ca {
            let path = at_home(&ca.fill(self.values).map_err(no_value)?);
            let pem = read(&path, LARGEST_CA).map_err(|why| format!("the certificates cannot be read: {why}"))?;
            let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
                .filter_map(|item| match item {
                    Ok(PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                })
                .collect();
            if certificates.is_empty() {
                return Err("the certificates cannot be read: none is in the file".to_string());
            }
            tls = tls.root_certs(RootCerts::from(certificates));
        }
        let config = Agent::config_builder()
            .tls_config(tls.build())
            // Whatever the environment says of proxies: what is asked is the launch itself.
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .max_idle_connections(0)
            .user_agent(concat!("stagemark/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(Duration::from_nanos(self.of.connect_timeout_ns)))
            .timeout_global(Some(Duration::from_nanos(self.of.timeout_ns)));
        let agent = Agent::new_with_config(config.build());
        self.agent = Some(agent.clone());
        Ok(agent)
    }

    /// Sends it and reads the response; returns what is kept of one that is accepted.
    fn exchange(&self, agent: &Agent, heard: &dyn Fn(), of_body: &mut BodyRead) -> Result<String, String> {
        let mut builder = ureq::http::Request::builder().method(self.of.method.as_str()).uri(&self.url);
        let has = |name: &str| self.of.headers.keys().any(|other| other.eq_ignore_ascii_case(name));
        let is_secret = |name: &str| self.secrets.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        for (name, value) in self.of.headers.iter().filter(|(name, _)| !is_secret(name)) {
            builder = builder.header(name, value.fill_known(self.values));
        }
        for (name, value) in &self.secrets.headers {
            builder = builder.header(name, value);
        }
        if !has("connection") {
            builder = builder.header("connection", "close");
        }
        let body = self.body()?;
        if let Some((kind, _)) = &body
            && !has("content-type")
        {
            builder = builder.header("content-type", *kind);
        }
        let wrong = |error: ureq::http::Error| format!("no request: {error}");
        let response = match body {
            None => agent.run(builder.body(()).map_err(wrong)?),
            Some((_, body)) => agent.run(builder.body(body).map_err(wrong)?),
        };
        let response = response.map_err(|error| why(&error))?;
        heard();
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        if !self.of.accept.status.contains(&status) {
            return Err(format!("status {status}"));
        }
        let mut body = body.into_reader();
        let mut kept = Vec::new();
        let mut buffer = vec![0; 16 * 1024];
        let mut read = 0u64;
        loop {
            let length = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
                        Some(error) => format!("{} in the body", why(error)),
                        None => format!("{} in the body", words(&error)),
                    });
                }
            };
            of_body.first_byte.get_or_insert_with(Mono::now);
            read += length as u64;
            of_body.bytes = Some(read);
            let room = MOST_MATCHED - kept.len();
            kept.extend_from_slice(&buffer[..length.min(room)]);
            if length > room {
                // What comes now is neither matched nor kept: a body may have no end.
                of_body.is_cut = true;
                break;
            }
        }
        of_body.bytes.get_or_insert(0);
        let headers: Vec<(&str, &[u8])> =
            head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        self.of.accept.judge(status, headers.iter().copied(), &kept).map_err(|wrong| match of_body.is_cut {
            true => format!("{wrong}, of which the first {MOST_MATCHED} bytes were read"),
            false => wrong,
        })?;
        Ok(self.keep(&format!("{:?} {}", head.version, head.status), &headers, &kept, of_body.is_cut))
    }

    fn body(&self) -> Result<Option<(&'static str, Vec<u8>)>, String> {
        Ok(match &self.of.body {
            None => None,
            Some(Body::Json(json)) => Some(("application/json", fill_json(json, self.values).to_string().into_bytes())),
            Some(Body::File(path)) => {
                let path = at_home(&Template::fill(path, self.values).map_err(no_value)?);
                let bytes =
                    read(&path, LARGEST_BODY).map_err(|why| format!("the request's file cannot be read: {why}"))?;
                let is_json = path.extension().is_some_and(|extension| extension == "json");
                Some((if is_json { "application/json" } else { "application/octet-stream" }, bytes))
            }
        })
    }

    /// The response as text, secrets masked.
    fn keep(&self, status: &str, headers: &[(&str, &[u8])], body: &[u8], is_cut: bool) -> String {
        let mut text = format!("{} {}\n{status}\n", self.of.method, self.url);
        for (name, value) in headers {
            let value = String::from_utf8_lossy(value);
            let value = if is_secret_name(name) || *name == "set-cookie" { MASK.into() } else { value };
            // Writing to a text does not fail.
            let _ = writeln!(text, "{name}: {value}");
        }
        text.push('\n');
        let mut text = self.secrets.clean(&text);
        // Masked before it is cut: half a secret is none that would be found.
        let whole = body.len() - if is_cut { self.secrets.longest().min(body.len()) } else { 0 };
        let size = body.len();
        let body = self.secrets.clean(&String::from_utf8_lossy(&body[..whole]));
        let mut end = body.len().min(MOST_KEPT.saturating_sub(text.len()));
        while !body.is_char_boundary(end) {
            end -= 1;
        }
        text.push_str(&body[..end]);
        if is_cut {
            let _ = write!(text, "\n… (more than {size} bytes in all; the rest was not read)");
        } else if end < body.len() {
            let _ = write!(text, "\n… ({size} bytes in all)");
        }
        text
    }
}

/// A whole regular file, unless it is larger than that.
fn read(path: &std::path::Path, most: u64) -> Result<Vec<u8>, String> {
    // Asked before the open, which would wait for the writer of a FIFO.
    let metadata = std::fs::metadata(path).map_err(|error| words(&error))?;
    if !metadata.is_file() {
        return Err("no regular file".to_string());
    }
    if metadata.len() > most {
        return Err(format!("larger than {most} bytes"));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| words(&error))?;
    file.take(most).read_to_end(&mut bytes).map_err(|error| words(&error))?;
    Ok(bytes)
}

/// Why there is no response, in a few words that are the same for the same reason.
fn why(error: &Error) -> String {
    match error {
        Error::Io(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(inner) => why(inner),
            None => words(error),
        },
        Error::Timeout(Timeout::Resolve | Timeout::Connect) => "timed out connecting".to_string(),
        Error::Timeout(_) => "timed out".to_string(),
        Error::HostNotFound => "no such host".to_string(),
        Error::ConnectionFailed => "refused".to_string(),
        other => other.to_string().chars().filter(|c| !c.is_control()).take(200).collect(),
    }
}
