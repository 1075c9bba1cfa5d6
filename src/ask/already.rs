//! What would be taken for the launch's doing, and is there before it: a file of a former launch, a port or a socket at
//! which another program listens. Looked at once before the start, within a bound of time, so that it can be told of.
//!
//! Sends no request and connects to nobody: the kernel says who listens (`listening`). Asks this machine alone.

use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::connect::{self, is_this_machine};
use super::listening;
use crate::stage::asked::{self, Values};
use crate::stage::{Condition, StageFile};

/// How long all of it may take.
const LIMIT: Duration = Duration::from_millis(200);
/// The kernel's tables of sockets.
const NET: &str = "/proc/net";
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
            if let Some(at) = look.is_there()
                && sender.send((index, at)).is_err()
            {
                return;
            }
        }
    });
    if looking.is_err() {
        return Vec::new();
    }
    let until = Instant::now() + LIMIT;
    let mut there = BTreeMap::new();
    while let Ok((index, at)) = found.recv_timeout(until.saturating_duration_since(Instant::now())) {
        there.insert(index, looked[index].0.sentence(&at, &looked[index].1));
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

    /// What is there, as it is named; `None` where nothing is, or where that cannot be known.
    fn is_there(&self) -> Option<String> {
        match self {
            Look::File(of, values) => {
                let file = connect::File::of(of, values).ok()?;
                file.attempt().wrong.is_none().then(|| of.path.fill_known(values))
            }
            Look::Unix(of, values) => {
                let unix = connect::Unix::of(of, values).ok()?;
                listening::unix(Path::new(NET), &unix.bound()?).then(|| of.path.fill_known(values))
            }
            Look::Port(address) => {
                let mut addresses = address.to_socket_addrs().ok()?.take(NAMED);
                let listener = addresses.find_map(|to| Some((to, listening::tcp(Path::new(NET), to)?)));
                listener.map(|(to, at)| match at.ip().is_unspecified() && to.is_ipv4() != at.is_ipv4() {
                    true => at.to_string(),
                    false => address.clone(),
                })
            }
        }
    }

    fn sentence(&self, at: &str, stages: &[String]) -> String {
        let (first, rest) = stages.split_at(stages.len().min(NAMED));
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        let stages = format!("{} {}{more}", if stages.len() == 1 { "stage" } else { "stages" }, first.join(", "));
        match self {
            Look::File(of, _) => {
                let is = if of.matches.is_some() { "matches" } else { "is there" };
                format!("the file {at} {is} already, before the start: by it {stages} would be marked at once")
            }
            Look::Unix(..) => {
                format!("somebody listens at {at} already, before the start: {stages} may be marked by another program")
            }
            Look::Port(_) => format!(
                "somebody listens at {at} already, before the start: {stages} may be marked by another program's answer"
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

    /// It may be a server that serves one connection and is gone.
    #[test]
    fn nobody_is_connected_to() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let unix = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = tcp.local_addr().unwrap();
        let stages = format!(
            "[[stage]]\nname = 'up'\nwhen = {{ tcp = '{at}' }}\n[[stage]]\nname = 'ready'\nwhen = {{ http = 'http://{at}/' }}\n\
             [[stage]]\nname = 'u'\nwhen = {{ unix = '{}' }}\n",
            socket.display()
        );
        assert_eq!(told(&stages, &[]).len(), 2);
        tcp.set_nonblocking(true).unwrap();
        unix.set_nonblocking(true).unwrap();
        assert_eq!(tcp.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        assert_eq!(unix.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}
