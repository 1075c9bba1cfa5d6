//! Reading the conditions that have parts of their own.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use sha2::{Digest, Sha256};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Fields, Files, Reader, StageError, Variable, hint};
use crate::artifact::hexadecimal;
use crate::event::text_of;
use crate::host::mask::is_secret_name;
use crate::stage::amount;
use crate::stage::asked::{
    Body, CONNECT_TIMEOUT_NS, FileIs, Http, POLL_NS, Tcp, Template, Unix, Values, Work, at_home, lacking,
};
use crate::stage::condition::{Condition, Count, FirstOutput, Growth, Pattern, Plateau, Quiet, Share};

/// The shortest and the longest time between attempts, and of an attempt.
const POLLS: Range<u64> = 10_000_000..3_600_000_000_001;
const TIMEOUTS: Range<u64> = 1_000_000..3_600_000_000_001;

/// The deepest nesting of a request's JSON.
const DEEPEST_JSON: usize = 32;

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The most requests of a workload.
const MOST_REQUESTS: usize = 10_000;

impl Work {
    /// Requests from a file of one JSON object a line, with the keys of an `http` condition, and `id` where one has a name.
    /// Their variables are those of the stage files with which they are used.
    pub fn parse(text: &str, origin: &str, concurrency: usize) -> Result<Work, StageError> {
        let mut each = Vec::new();
        // What some editors put before the first line.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() {
                continue;
            }
            let wrong = |problem: String| StageError { origin: origin.to_string(), line: number, column: 1, problem };
            if each.len() == MOST_REQUESTS {
                return Err(wrong(format!("more than {MOST_REQUESTS} requests")));
            }
            each.push(request(line, each.len() + 1).map_err(wrong)?);
        }
        if each.is_empty() {
            let problem = "no request: expected a JSON object a line, as {\"url\": \"http://…\"}".to_string();
            return Err(StageError { origin: origin.to_string(), line: 1, column: 1, problem });
        }
        let file_digest = hexadecimal(&Sha256::digest(text.as_bytes()));
        Ok(Work { file_digest, requests: each.len(), concurrency, each })
    }
}

/// A request by its JSON object, and its name.
fn request(line: &str, number: usize) -> Result<(String, Http), String> {
    let mut keys: serde_json::Map<String, Value> = serde_json::from_str(line).map_err(|error| format!("{error}"))?;
    let id = match keys.remove("id") {
        None => number.to_string(),
        Some(Value::String(id)) if id.len() <= 64 && !id.chars().any(char::is_control) => id,
        Some(Value::Number(id)) => id.to_string(),
        Some(_) => return Err("`id`: expected a number or text of at most 64 bytes".to_string()),
    };
    // TOML, by which the keys are read, has no null.
    let json = keys.remove("json");
    let equals = match keys.remove("equals") {
        None => BTreeMap::new(),
        Some(Value::Object(equals)) => equals.into_iter().collect(),
        Some(_) => return Err("`equals`: expected an object of JSON pointers".to_string()),
    };
    if equals.keys().any(|pointer: &String| !pointer.is_empty() && !pointer.starts_with('/')) {
        return Err("`equals`: a JSON pointer begins with `/`".to_string());
    }
    if json.is_some() && keys.contains_key("body_file") {
        return Err("either `json` or `body_file`".to_string());
    }
    if let Some((key, _)) = keys.iter().find(|(_, value)| value.is_null()) {
        return Err(format!("`{}`: null is no value; leave the key out", text_of(key)));
    }
    let named = keys.contains_key("method");
    let text = toml::to_string(&BTreeMap::from([("http", keys)])).map_err(|error| error.to_string())?;
    let reader = Reader { vars: None, ..Reader::new(&text, "") };
    let table = DeTable::parse(&text).map_err(|error| error.message().to_string())?;
    let value = table.get_ref().get("http").ok_or("not an object")?;
    let mut http = reader.http(value).map_err(|error| error.problem)?;
    if let Some(json) = json {
        if !named {
            http.method = "POST".to_string();
        } else if !matches!(http.method.as_str(), "POST" | "PUT" | "PATCH") {
            return Err("`method`: a request with a body is POST, PUT or PATCH".to_string());
        }
        http.body = Some(Body::Json(json));
    }
    http.accept.equals = equals;
    Ok((id, http))
}

impl Reader<'_> {
    pub(super) fn variable(&self, value: &Spanned<DeValue>, name: &str) -> Result<Variable, StageError> {
        let fields = self.fields(self.table(value, name)?, &["flag", "env", "default"])?;
        let default = self.required(&fields, "default", value.span())?;
        let variable = Variable {
            flag: fields.get("flag").map_or(Ok(Vec::new()), |value| self.one_or_more(value, "flag"))?,
            env: fields.get("env").map_or(Ok(Vec::new()), |value| self.one_or_more(value, "env"))?,
            default: self.text(default, "default")?.to_string(),
        };
        if variable.flag.is_empty() && variable.env.is_empty() {
            return Err(self.error(value.span(), format!("`{name}` needs a `flag` or an `env` that it is taken from")));
        }
        let (secret, plain): (Vec<&String>, Vec<&String>) =
            variable.flag.iter().chain(&variable.env).partition(|source| is_secret_name(source));
        if let Some(secret) = secret.first() {
            let problem = format!("`{secret}` sounds like a secret, and variables are recorded; see --header-env");
            return Err(self.error(value.span(), problem));
        }
        match plain.iter().find(|source| source.is_empty()) {
            Some(_) => Err(self.error(value.span(), format!("`{name}`: an empty flag or variable"))),
            None => Ok(variable),
        }
    }

    fn one_or_more(&self, value: &Spanned<DeValue>, what: &str) -> Result<Vec<String>, StageError> {
        match value.get_ref() {
            DeValue::Array(_) => self.texts(Some(&value), what),
            _ => Ok(vec![self.text(value, what)?.to_string()]),
        }
    }

    pub(super) fn share(&self, value: &Spanned<DeValue>, what: &str) -> Result<Share, StageError> {
        match value.get_ref() {
            DeValue::String(text) => text.parse::<Share>(),
            // The digits as they were written: a binary float would not be the share that was meant.
            DeValue::Float(number) => number.as_str().replace('_', "").parse(),
            DeValue::Integer(number) => number.as_str().parse(),
            _ => return Err(self.wrong(value, what, "a share (\"99%\", or a number up to 1)")),
        }
        .map_err(|problem| self.error(value.span(), format!("`{what}`: {problem}")))
    }

    /// A number, or text that becomes one.
    pub(super) fn count(&self, value: &Spanned<DeValue>) -> Result<Count, StageError> {
        if let DeValue::String(_) = value.get_ref() {
            let count = Count::Of(self.template(value, "count")?);
            let defaults = self.vars.iter().flatten().map(|(name, variable)| (name.clone(), variable.default.clone()));
            return match count.number(&defaults.collect()) {
                Some(_) => Ok(count),
                None => Err(self.error(value.span(), "`count`: with the variables' defaults it is no number from 1")),
            };
        }
        match self.whole(value, "count")? {
            count @ 1.. => Ok(Count::Number(count as u64)),
            _ => Err(self.error(value.span(), "`count`: expected at least 1")),
        }
    }

    /// Text all of whose `{name}` are variables.
    fn template(&self, value: &Spanned<DeValue>, what: &str) -> Result<Template, StageError> {
        self.template_of(self.text(value, what)?, value.span(), what)
    }

    fn template_of(&self, text: &str, span: Range<usize>, what: &str) -> Result<Template, StageError> {
        if text.is_empty() {
            return Err(self.error(span, format!("`{what}` is empty")));
        }
        let template = Template::new(text);
        let Some(vars) = &self.vars else { return Ok(template) };
        let unknown = template.names().into_iter().find(|name| !vars.contains_key(*name)).map(str::to_string);
        match unknown {
            None => Ok(template),
            Some(name) => {
                let known: Vec<&str> = vars.keys().map(String::as_str).collect();
                let hint = if known.is_empty() { String::new() } else { hint(&name, &known) };
                Err(self.error(span, format!("`{what}`: there is no variable `{name}` in `vars`{hint}")))
            }
        }
    }

    fn pattern(&self, value: &Spanned<DeValue>, what: &str) -> Result<Pattern, StageError> {
        self.pattern_of(self.text(value, what)?)
            .map_err(|problem| self.error(value.span(), format!("`{what}`: {problem}")))
    }

    /// A time within limits, or the default.
    fn time(&self, fields: &Fields, key: &str, within: Range<u64>, default: u64) -> Result<u64, StageError> {
        let Some(value) = fields.get(key) else { return Ok(default) };
        let wrong = |problem: String| self.error(value.span(), format!("`{key}`: {problem}"));
        let time = amount::time(self.text(value, key)?).map_err(wrong)?;
        if within.contains(&time) {
            return Ok(time);
        }
        Err(wrong(format!("from {} ms to 1 h", within.start as f64 / 1e6)))
    }

    /// The condition's own table; one text alone is that key's value.
    fn own<'a>(
        &self,
        value: &'a Spanned<DeValue<'a>>,
        what: &str,
        known: &[&'static str],
    ) -> Result<Fields<'a>, StageError> {
        match value.get_ref() {
            DeValue::String(_) => Ok(BTreeMap::from([(known[0], value)])),
            _ => self.fields(self.table(value, what)?, known),
        }
    }

    pub(super) fn http<'a>(&self, value: &'a Spanned<DeValue<'a>>) -> Result<Http, StageError> {
        let known = [
            "url",
            "method",
            "headers",
            "json",
            "body_file",
            "status",
            "response_headers",
            "body",
            "exists",
            "equals",
            "ca",
            "connect_timeout",
            "timeout",
            "poll",
        ];
        let fields = self.own(value, "http", &known)?;
        let url = self.required(&fields, "url", value.span())?;
        let mut http = self.request_to(self.text(url, "url")?, url.span())?;
        http.body = match (fields.get("json"), fields.get("body_file")) {
            (Some(_), Some(file)) => return Err(self.error(file.span(), "either `json` or `body_file`")),
            (Some(json), None) => Some(Body::Json(self.json(json, 0)?)),
            (None, Some(file)) => Some(Body::File(self.file_at_hand(file, "body_file")?)),
            (None, None) => None,
        };
        http.method = match fields.get("method") {
            None if http.body.is_some() => "POST".to_string(),
            None => http.method,
            Some(value) => match self.text(value, "method")? {
                "GET" | "HEAD" | "OPTIONS" | "DELETE" if http.body.is_some() => {
                    return Err(self.error(value.span(), "`method`: a request with a body is POST, PUT or PATCH"));
                }
                method if METHODS.contains(&method) => method.to_string(),
                method => {
                    return Err(self.error(value.span(), format!("`method`: unknown{}", hint(method, METHODS))));
                }
            },
        };
        if let Some(headers) = fields.get("headers") {
            for (name, value) in self.table(headers, "headers")?.iter() {
                let name = self.header_name(name.get_ref(), name.span())?;
                if is_secret_name(&name) {
                    let problem = format!(
                        "`{name}` sounds like a secret, which stands in no file: give it by --header-env '{name}=VARIABLE'"
                    );
                    return Err(self.error(value.span(), problem));
                }
                let text = self.text(value, &name)?;
                if text.chars().any(char::is_control) {
                    return Err(self.error(value.span(), format!("`{name}`: a control character in a header")));
                }
                http.headers.insert(name, Template::new(text));
            }
        }
        if let Some(value) = fields.get("status") {
            let status = |value: &Spanned<DeValue>| match self.whole(value, "status")? {
                code @ 100..=599 => Ok(code as u16),
                _ => Err(self.error(value.span(), "`status`: expected 100 to 599")),
            };
            http.accept.status = match value.get_ref() {
                DeValue::Array(items) => items.iter().map(status).collect::<Result<_, _>>()?,
                _ => vec![status(value)?],
            };
            if http.accept.status.is_empty() {
                return Err(self.error(value.span(), "`status`: none would be acceptable"));
            }
            http.accept.status.sort_unstable();
            http.accept.status.dedup();
        }
        if let Some(headers) = fields.get("response_headers") {
            for (name, value) in self.table(headers, "response_headers")?.iter() {
                let name = self.header_name(name.get_ref(), name.span())?.to_ascii_lowercase();
                let pattern = self.pattern(value, &name)?;
                http.accept.headers.insert(name, pattern);
            }
        }
        http.accept.body = fields.get("body").map(|value| self.pattern(value, "body")).transpose()?;
        if let Some(value) = fields.get("exists") {
            let pointers = self.one_or_more(value, "exists")?;
            http.accept.exists =
                pointers.into_iter().map(|text| self.pointer(text, value.span())).collect::<Result<_, _>>()?;
        }
        if let Some(equals) = fields.get("equals") {
            for (pointer, value) in self.table(equals, "equals")?.iter() {
                let pointer = self.pointer(pointer.get_ref().to_string(), pointer.span())?;
                http.accept.equals.insert(pointer, self.json(value, 0)?);
            }
        }
        http.ca = fields.get("ca").map(|value| self.file_at_hand(value, "ca")).transpose()?;
        http.connect_timeout_ns = self.time(&fields, "connect_timeout", TIMEOUTS, http.connect_timeout_ns)?;
        http.timeout_ns = self.time(&fields, "timeout", TIMEOUTS, http.timeout_ns)?;
        http.poll_ns = self.time(&fields, "poll", POLLS, http.poll_ns)?;
        Ok(http)
    }

    fn request_to(&self, url: &str, span: Range<usize>) -> Result<Http, StageError> {
        let url = self.template_of(url, span.clone(), "url")?;
        let text = url.as_str();
        if !["http://", "https://"].iter().any(|scheme| text.starts_with(scheme)) {
            return Err(self.error(span, "`url`: expected http://… or https://…"));
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(self.error(span, "`url`: white space in it"));
        }
        let http = Http::to(text);
        let authority = http.authority();
        if authority.contains('@') {
            return Err(self.error(span, "`url`: a password stands in no file: give it by --header-env"));
        }
        let query = text.split_once('?').map_or("", |(_, query)| query);
        let mut pairs = query.split(['&', ';', '#']).filter_map(|pair| pair.split_once('='));
        if let Some((name, _)) = pairs.find(|(name, value)| !value.is_empty() && is_secret_name(name)) {
            let problem =
                format!("`url`: `{name}` sounds like a secret, which stands in no file: give it by --header-env");
            return Err(self.error(span, problem));
        }
        let authority = self.by_default(&Template::new(authority));
        let (host, port) = match authority.rsplit_once(':') {
            // The colons of an address of IPv6 stand in brackets.
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (&authority[..], None),
        };
        if host.is_empty() {
            return Err(self.error(span, "`url`: no host in it"));
        }
        port.map_or(Ok(()), |port| self.port("url", port, span))?;
        Ok(http)
    }

    /// A text as it is with the variables' defaults, as far as they are known.
    fn by_default(&self, template: &Template) -> String {
        let vars = self.vars.iter().flatten();
        let values: Values = vars.map(|(name, variable)| (name.clone(), variable.default.clone())).collect();
        template.fill_address(&values).unwrap_or_else(|_| template.as_str().to_string())
    }

    /// A port that somebody may listen on; what has a variable without a value in it is not looked at.
    fn port(&self, what: &str, port: &str, span: Range<usize>) -> Result<(), StageError> {
        if port.contains('{') || port.parse::<u16>().is_ok_and(|port| port > 0) {
            return Ok(());
        }
        Err(self.error(span, format!("`{what}`: expected a port from 1 to 65535, found `{}`", text_of(port))))
    }

    /// A file that is needed; where that is asked for, it must be there, unless its name depends on the launch.
    fn file_at_hand(&self, value: &Spanned<DeValue>, what: &str) -> Result<Template, StageError> {
        let template = self.template(value, what)?;
        if self.files == Files::Leave || !template.names().is_empty() {
            return Ok(template);
        }
        let Some(lack) = lacking(&at_home(template.as_str())) else { return Ok(template) };
        Err(self.error(value.span(), format!("`{what}`: {}: {lack}", text_of(template.as_str()))))
    }

    fn header_name(&self, name: &str, span: Range<usize>) -> Result<String, StageError> {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if !name.is_empty() && name.bytes().all(is_token) {
            return Ok(name.to_string());
        }
        Err(self.error(span, "not the name of a header"))
    }

    fn pointer(&self, text: String, span: Range<usize>) -> Result<String, StageError> {
        if text.is_empty() || text.starts_with('/') {
            return Ok(text);
        }
        Err(self.error(span, "a JSON pointer begins with `/`, as in \"/choices/0/text\""))
    }

    fn json(&self, value: &Spanned<DeValue>, depth: usize) -> Result<Value, StageError> {
        if depth > DEEPEST_JSON {
            return Err(self.error(value.span(), format!("nested deeper than {DEEPEST_JSON}")));
        }
        Ok(match value.get_ref() {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Integer(_) => self.whole(value, "json")?.into(),
            DeValue::Float(number) => {
                let number = number.as_str().replace('_', "").parse::<f64>().ok();
                let number = number.and_then(serde_json::Number::from_f64);
                Value::Number(number.ok_or_else(|| self.error(value.span(), "no number that JSON has"))?)
            }
            DeValue::Boolean(truth) => Value::Bool(*truth),
            DeValue::Array(items) => {
                Value::Array(items.iter().map(|item| self.json(item, depth + 1)).collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => self.json_object(table, depth)?,
            DeValue::Datetime(_) => return Err(self.error(value.span(), "JSON has no dates: write it as text")),
        })
    }

    fn json_object(&self, table: &DeTable, depth: usize) -> Result<Value, StageError> {
        let fields = table.iter().map(|(key, item)| Ok((key.get_ref().to_string(), self.json(item, depth + 1)?)));
        Ok(Value::Object(fields.collect::<Result<_, StageError>>()?))
    }

    pub(super) fn tcp<'a>(&self, value: &'a Spanned<DeValue<'a>>) -> Result<Tcp, StageError> {
        let fields = self.own(value, "tcp", &["address", "connect_timeout", "poll"])?;
        let address = self.required(&fields, "address", value.span())?;
        Ok(Tcp {
            connect_timeout_ns: self.time(&fields, "connect_timeout", TIMEOUTS, CONNECT_TIMEOUT_NS)?,
            poll_ns: self.time(&fields, "poll", POLLS, POLL_NS)?,
            ..self.connection_to(self.text(address, "address")?, address.span())?
        })
    }

    fn connection_to(&self, address: &str, span: Range<usize>) -> Result<Tcp, StageError> {
        let address = self.template_of(address, span.clone(), "address")?;
        match address.as_str().rsplit_once(':') {
            Some((host, _)) if !host.is_empty() => {
                let filled = self.by_default(&address);
                self.port("tcp", filled.rsplit_once(':').map_or("", |(_, port)| port), span)?;
                Ok(Tcp { address, connect_timeout_ns: CONNECT_TIMEOUT_NS, poll_ns: POLL_NS })
            }
            _ => Err(self.error(span, "`tcp`: expected HOST:PORT")),
        }
    }

    pub(super) fn unix<'a>(&self, value: &'a Spanned<DeValue<'a>>) -> Result<Unix, StageError> {
        let fields = self.own(value, "unix", &["path", "poll"])?;
        let path = self.required(&fields, "path", value.span())?;
        Ok(Unix { path: self.template(path, "path")?, poll_ns: self.time(&fields, "poll", POLLS, POLL_NS)? })
    }

    pub(super) fn file<'a>(&self, value: &'a Spanned<DeValue<'a>>) -> Result<FileIs, StageError> {
        let fields = self.own(value, "file", &["path", "matches", "poll"])?;
        let path = self.required(&fields, "path", value.span())?;
        Ok(FileIs {
            path: self.template(path, "path")?,
            matches: fields.get("matches").map(|value| self.pattern(value, "matches")).transpose()?,
            poll_ns: self.time(&fields, "poll", POLLS, POLL_NS)?,
        })
    }

    pub(super) fn quiet<'a>(&self, value: &'a Spanned<DeValue<'a>>) -> Result<Quiet, StageError> {
        let fields = self.own(value, "quiet", &["time", "of"])?;
        self.required(&fields, "time", value.span())?;
        let mut quiet = Quiet { time_ns: self.time(&fields, "time", POLLS, 0)?, faults: true, reads: true };
        if let Some(of) = fields.get("of") {
            let of_words = self.one_or_more(of, "of")?;
            quiet.faults = of_words.iter().any(|word| word == "faults");
            quiet.reads = of_words.iter().any(|word| word == "reads");
            let known = |word: &String| matches!(word.as_str(), "faults" | "reads");
            if of_words.is_empty() || !of_words.iter().all(known) {
                return Err(self.error(of.span(), "`of`: expected \"faults\", \"reads\", or both"));
            }
        }
        Ok(quiet)
    }

    pub(super) fn device<'a>(&self, value: &'a Spanned<DeValue<'a>>) -> Result<Plateau, StageError> {
        let fields = self.fields(self.table(value, "device")?, &["rise", "still"])?;
        let rise = self.required(&fields, "rise", value.span())?;
        self.required(&fields, "still", value.span())?;
        let rise_bytes = amount::size(self.text(rise, "rise")?)
            .map_err(|problem| self.error(rise.span(), format!("`rise`: {problem}")))?;
        if rise_bytes == 0 {
            return Err(self.error(rise.span(), "`rise`: nothing is no rise"));
        }
        Ok(Plateau { rise_bytes, still_ns: self.time(&fields, "still", POLLS, 0)? })
    }

    pub(super) fn anon<'a>(&self, value: &'a Spanned<DeValue<'a>>) -> Result<Growth, StageError> {
        let fields = self.fields(self.table(value, "anon")?, &["rise", "still"])?;
        let rise = self.required(&fields, "rise", value.span())?;
        self.required(&fields, "still", value.span())?;
        Ok(Growth { rise: self.share(rise, "rise")?, still_ns: self.time(&fields, "still", POLLS, 0)? })
    }

    /// A condition by one text, as the command line has it.
    pub(super) fn asked_by_text(&self, kind: &str, text: &str, span: Range<usize>) -> Result<Condition, StageError> {
        let wrong = |problem: String| self.error(span.clone(), problem);
        let path = || self.template_of(text, span.clone(), kind);
        Ok(match kind {
            "http" => Condition::Http(Box::new(self.request_to(text, span.clone())?)),
            "tcp" => Condition::Tcp(self.connection_to(text, span.clone())?),
            "unix" => Condition::Unix(Unix { path: path()?, poll_ns: POLL_NS }),
            "file" => Condition::File(FileIs { path: path()?, matches: None, poll_ns: POLL_NS }),
            "first_output" => Condition::FirstOutput(FirstOutput {
                what: text.parse().map_err(wrong)?,
                stream: crate::event::Stream::Stdout,
            }),
            "unmap" => Condition::Unmap(text.parse().map_err(wrong)?),
            _ => match amount::time(text).map_err(wrong)? {
                time_ns if POLLS.contains(&time_ns) => Condition::Quiet(Quiet { time_ns, faults: true, reads: true }),
                _ => return Err(wrong("from 10 ms to 1 h".to_string())),
            },
        })
    }
}
