//! What would be taken for the launch's doing, and is there before it: a file of a former launch, a port or a socket at
//! which another program listens. Looked at once before the start, within a bound of time, so that it can be told of.
//!
//! Sends no request: that somebody accepts a connection is enough to know that somebody is there. Asks this machine
//! alone.

use std::collections::BTreeMap;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::connect::{self, is_this_machine};
use crate::stage::asked::{self, Values};
use crate::stage::{Condition, StageFile};

/// How long all of it may take.
const LIMIT: Duration = Duration::from_millis(200);
/// How long one connection may.
const CONNECT: Duration = Duration::from_millis(50);
/// So many stages are named for one thing.
const NAMED: usize = 3;

/// What is there already, in the order of the stages: a sentence each. `values` are those of the variables, as far as
/// they are known before the start; what needs another one is not looked at.
pub fn already(file: &StageFile, values: &Values) -> Vec<String> {
    let mut looked: Vec<(Look, Vec<String>)> = Vec::new();
    for stage in &file.stages {
        for condition in stage.conditions().flat_map(Condition::leaves) {
            for look in Look::all(condition, values) {
                let name = format!("`{}`", stage.name);
                match looked.iter_mut().find(|(known, _)| *known == look) {
                    Some((_, stages)) if stages.contains(&name) => {}
                    Some((_, stages)) => stages.push(name),
                    None => looked.push((look, vec![name])),
                }
            }
        }
    }
    let (sender, found) = channel();
    let looks: Vec<Look> = looked.iter().map(|(look, _)| look.clone()).collect();
    // On a thread of its own: a path may lie on a filesystem that does not answer.
    let looking = std::thread::Builder::new().name("already".into()).spawn(move || {
        for (index, look) in looks.into_iter().enumerate() {
            if look.is_there() && sender.send(index).is_err() {
                return;
            }
        }
    });
    if looking.is_err() {
        return Vec::new();
    }
    let until = Instant::now() + LIMIT;
    let mut there = BTreeMap::new();
    while let Ok(index) = found.recv_timeout(until.saturating_duration_since(Instant::now())) {
        there.insert(index, looked[index].0.sentence(&looked[index].1));
    }
    there.into_values().collect()
}

/// One thing to look at.
#[derive(Clone, PartialEq)]
enum Look {
    File(asked::FileIs, Values),
    Unix(asked::Unix, Values),
    /// `HOST:PORT`.
    Port(String),
}

impl Look {
    fn all(condition: &Condition, values: &Values) -> Vec<Look> {
        let known = |template: &asked::Template| template.names().iter().all(|name| values.contains_key(*name));
        // Only what matters of them: two stages may ask for one thing.
        let of = |template: &asked::Template| {
            let names = template.names();
            values
                .iter()
                .filter(|(name, _)| names.contains(name.as_str()))
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect()
        };
        let port = |http: &asked::Http| {
            let url = http.url.fill_address(values).ok()?.parse::<ureq::http::Uri>().ok()?;
            let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("https") { 443 } else { 80 });
            url.host().filter(|host| is_this_machine(host)).map(|host| Look::Port(format!("{host}:{port}")))
        };
        match condition {
            Condition::File(file) if known(&file.path) => vec![Look::File(file.clone(), of(&file.path))],
            Condition::Unix(unix) if known(&unix.path) => vec![Look::Unix(unix.clone(), of(&unix.path))],
            Condition::Tcp(tcp) => {
                let address = tcp.address.fill_address(values).ok();
                let here = |address: &String| address.rsplit_once(':').is_some_and(|(host, _)| is_this_machine(host));
                address.filter(here).map(Look::Port).into_iter().collect()
            }
            Condition::Http(http) => port(http).into_iter().collect(),
            Condition::Work(work) => work.each.iter().filter_map(|(_, http)| port(http)).collect(),
            _ => Vec::new(),
        }
    }

    fn is_there(&self) -> bool {
        match self {
            Look::File(file, values) => {
                connect::File::of(file, values).is_ok_and(|file| file.attempt().wrong.is_none())
            }
            Look::Unix(unix, values) => {
                connect::Unix::of(unix, values).is_ok_and(|unix| unix.attempt().wrong.is_none())
            }
            Look::Port(address) => {
                let connects = |to: &std::net::SocketAddr| match TcpStream::connect_timeout(to, CONNECT) {
                    // A port that nobody listens on may be given to the very socket that looks for it.
                    Ok(stream) => stream.local_addr().ok() != stream.peer_addr().ok(),
                    Err(_) => false,
                };
                address.to_socket_addrs().is_ok_and(|addresses| addresses.take(NAMED).any(|address| connects(&address)))
            }
        }
    }

    fn sentence(&self, stages: &[String]) -> String {
        let (first, rest) = stages.split_at(stages.len().min(NAMED));
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        let stages = format!("{} {}{more}", if stages.len() == 1 { "stage" } else { "stages" }, first.join(", "));
        let file = |path: &asked::Template, values: &Values| path.fill_known(values);
        match self {
            Look::File(of, values) => {
                let is = if of.matches.is_some() { "matches" } else { "is there" };
                format!(
                    "the file {} {is} already, before the start: by it {stages} would be marked at once",
                    file(&of.path, values)
                )
            }
            Look::Unix(of, values) => format!(
                "somebody listens at {} already, before the start: {stages} may be marked by another program",
                file(&of.path, values)
            ),
            Look::Port(address) => format!(
                "somebody listens at {address} already, before the start: {stages} may be marked by another program's answer"
            ),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn told(stages: &str, values: &[(&str, &str)]) -> Vec<String> {
        let vars = "vars = { port = { flag = '--port', default = '1' } }";
        let file = StageFile::parse(&format!("name = 't'\n{vars}\n{stages}"), "t").unwrap();
        already(&file, &values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[test]
    fn what_a_former_launch_left_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("done").display().to_string();
        let stages = format!(
            "[[stage]]\nname = 'a'\nwhen = {{ file = '{path}' }}\n[[stage]]\nname = 'b'\n\
             when = {{ all = [ {{ log = 'x' }}, {{ file = {{ path = '{path}', matches = 'new' }} }} ] }}\n"
        );
        assert_eq!(told(&stages, &[]), [""; 0]);
        std::fs::write(&path, "old").unwrap();
        assert_eq!(
            told(&stages, &[]),
            [format!("the file {path} is there already, before the start: by it stage `a` would be marked at once")]
        );
        std::fs::write(&path, "new").unwrap();
        assert_eq!(told(&stages, &[]).len(), 2);
        let socket = folder.path().join("socket").display().to_string();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let said = told(&format!("[[stage]]\nname = 'u'\nwhen = {{ unix = '{socket}' }}\n"), &[]);
        assert!(said[0].contains(&format!("listens at {socket} already")), "{said:?}");
    }

    #[test]
    fn a_port_that_another_program_answers_is_named_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let stages = "[[stage]]\nname = 'up'\nwhen = { tcp = '127.0.0.1:{port}' }\n[[stage]]\nname = 'ready'\n\
                      when = { http = 'http://127.0.0.1:{port}/health' }\n[[stage]]\nname = 'first'\n\
                      when = { http = 'http://127.0.0.1:{port}/v1' }\n[[stage]]\nname = 'far'\nwhen = { tcp = '192.0.2.1:9' }\n";
        assert_eq!(told(stages, &[]), [""; 0], "the port is not known before the start");
        let said = told(stages, &[("port", &port)]);
        let wanted = format!(
            "somebody listens at 127.0.0.1:{port} already, before the start: stages `up`, `ready`, `first` may be marked \
             by another program's answer"
        );
        assert_eq!(said, [wanted]);
        drop(listener);
        assert_eq!(told(stages, &[("port", &port)]), [""; 0]);
    }
}
