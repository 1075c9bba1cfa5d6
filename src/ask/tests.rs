use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use crate::stage::StageFile;

/// Long enough for the slowest machine; no test waits for it to pass.
const LIMIT: Duration = Duration::from_secs(60);

fn wanted(when: &str) -> Wanted {
    let file = StageFile::parse(&format!("name = 't'\n[[stage]]\nname = 's'\nwhen = {when}\n"), "t").unwrap();
    let condition = file.stages[0].when.clone().unwrap();
    Wanted { stage: "s".into(), part: 0, condition, values: Values::new() }
}

fn asking(secrets: Secrets) -> (Asking, Receiver<Seen>) {
    let (sender, seen) = channel();
    (Asking::new(Clock::new(Mono::now()), secrets, 0, sender), seen)
}

fn next_probe(seen: &Receiver<Seen>) -> (Seen, Probe) {
    loop {
        let seen = seen.recv_timeout(LIMIT).unwrap();
        if let Observed::Event(What::Probe(probe)) = &seen.what {
            let probe = probe.clone();
            return (seen, probe);
        }
    }
}

/// Reads a request's head and body, as far as its length is told.
fn request(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut byte = [0; 1];
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    let head = String::from_utf8(text).unwrap();
    let length = head.to_ascii_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

/// Answers one connection after the other with these texts, `None` hangs up at once; returns the requests.
fn serve(answers: Vec<Option<String>>) -> (u16, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            requests.push(request(&mut stream));
            if let Some(answer) = answer {
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
        requests
    });
    (port, serving)
}

fn answer(status: &str, body: &str) -> Option<String> {
    Some(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nx-echo: a\r\n\r\n{body}", body.len()))
}

#[test]
fn a_request_is_repeated_until_its_response_is_acceptable() {
    let answers =
        vec![None, answer("503 Busy", ""), answer("200 OK", "{}"), answer("200 OK", "{\"text\": \"sesame hi\"}")];
    let (port, serving) = serve(answers);
    let secrets = Secrets::from_environment(&["KEY".to_string()], |_| Some("sesame".into())).unwrap();
    let (asking, seen) = asking(secrets);
    let when = format!(
        "{{ http = {{ url = 'http://127.0.0.1:{port}/v1', json = {{ n = 1 }}, headers = {{ X-A = 'b' }}, body = '\"text\"', poll = '10 ms' }} }}"
    );
    asking.follow(vec![wanted(&when)]);
    let probes: Vec<(Seen, Probe)> = (0..4).map(|_| next_probe(&seen)).collect();
    let outcomes: Vec<&str> = probes.iter().map(|(_, probe)| probe.outcome.as_str()).collect();
    assert_eq!(outcomes[1..], ["status 503", "status 200, and the body does not match /\"text\"/", "accepted"]);
    assert!(["closed before the response was over", "reset"].contains(&outcomes[0]) || !outcomes[0].is_empty());
    let (last, accepted) = &probes[3];
    assert!(accepted.accepted && accepted.first_byte.is_some() && accepted.attempt == 4);
    assert_eq!(accepted.bytes, Some(21));
    // From the beginning of the attempt before it.
    let low = asking.0.clock.at(last.at).0 - last.uncertainty_ns.unwrap() as i64;
    assert_eq!(low, probes[2].1.began.0);
    for request in serving.join().unwrap() {
        assert!(request.starts_with("POST /v1 HTTP/1.1\r\n") && request.ends_with("\r\n\r\n{\"n\":1}"), "{request}");
        let request = request.to_ascii_lowercase();
        for header in ["authorization: bearer sesame", "x-a: b", "content-type: application/json", "connection: close"]
        {
            assert!(request.contains(header), "{header} is not in {request}");
        }
    }
    asking.finish();
}

#[test]
fn what_is_kept_holds_no_secret_and_is_bounded() {
    let long = format!("{{\"text\": \"sesame {}\"}}", "x".repeat(3 << 20));
    let (port, serving) = serve(vec![answer("200 OK", &long)]);
    let secrets = Secrets::from_environment(&["x-key=KEY".to_string()], |_| Some("Basic sesame\n".into())).unwrap();
    let (asking, seen) = asking(secrets);
    asking
        .follow(vec![wanted(&format!("{{ http = {{ url = 'http://127.0.0.1:{port}/?k=sesame', body = 'text' }} }}"))]);
    let Observed::Response { stage, part, text } = seen.recv_timeout(LIMIT).unwrap().what else {
        panic!("no response")
    };
    assert_eq!((stage.as_str(), part), ("s", 0));
    assert!(text.len() <= MOST_KEPT + 64 && text.contains("200 OK") && text.contains("x-echo: a"), "{}", text.len());
    assert!(text.ends_with("(more than 1048576 bytes in all; the rest was not read)") && !text.contains("sesame"));
    let (_, probe) = next_probe(&seen);
    let read = probe.bytes.unwrap();
    assert!(probe.is_cut && (1 << 20..(1 << 20) + (64 << 10)).contains(&read), "{read}");
    assert!(!probe.target.contains("sesame"));
    assert!(serving.join().unwrap()[0].to_ascii_lowercase().contains("x-key: basic sesame\r\n"));
    asking.finish();
}

#[test]
fn a_secret_is_masked_however_it_is_sent_back() {
    let secret = |value: &str| Secrets::from_environment(&["X-Key=K".to_string()], |_| Some(value.into())).unwrap();
    let secrets = secret("a/b\"c+d=");
    let body = "a/b\"c+d= a/b\\\"c+d= a\\/b\\\"c+d= a%2Fb%22c%2Bd%3D a%2fb%22c%2bd%3d Bearer a/b\"c+d=";
    assert_eq!(secrets.clean(body), "*** *** *** *** *** Bearer ***");
    // `user:open sesame`, as a server sees it that takes name and password.
    let secrets = secret("Basic dXNlcjpvcGVuIHNlc2FtZQ==");
    assert_eq!(secrets.clean("hello user:open sesame; open sesame; dXNlcjpvcGVuIHNlc2FtZQ=="), "hello ***; ***; ***");
    // One that is a part of another does not leave the rest of it.
    let both = ["X-A=short".to_string(), "X-B=long".to_string()];
    let both = Secrets::from_environment(&both, |name| Some(if name == "short" { "abcd" } else { "abcdefgh" }.into()));
    assert_eq!(both.unwrap().clean("abcdefgh abcd"), "*** ***");
}

#[test]
fn a_body_without_end_is_read_as_far_as_it_matters() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        request(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let mut sent = 0u64;
        while let Ok(length) = stream.write(&[b'x'; 1 << 16]) {
            sent += length as u64;
        }
        sent
    });
    let (asking, seen) = asking(Secrets::default());
    asking.follow(vec![wanted(&format!(
        "{{ http = {{ url = 'http://127.0.0.1:{port}/', body = '^x', timeout = '1 h' }} }}"
    ))]);
    let (_, probe) = next_probe(&seen);
    assert!(probe.accepted && probe.is_cut);
    // What was under way besides lay in the kernel's buffers.
    let sent = serving.join().unwrap();
    assert!(sent < 64 << 20, "{sent}");
    asking.finish();
}

#[test]
fn an_attempt_that_hangs_does_not_hold_the_end_up() {
    // It listens and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asking, seen) = asking(Secrets::default());
    asking.follow(vec![wanted(&format!("{{ http = 'http://127.0.0.1:{port}/' }}"))]);
    let (stream, _) = listener.accept().unwrap();
    let begun = Instant::now();
    asking.finish();
    assert!(begun.elapsed() < Duration::from_secs(10));
    let (_, probe) = next_probe(&seen);
    assert_eq!((probe.accepted, probe.outcome.as_str()), (false, "no answer before the asking ended"));
    // Nobody sends any more.
    assert!(seen.recv_timeout(LIMIT).is_err());
    drop(stream);
}

#[test]
fn a_stage_that_is_reached_otherwise_is_asked_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (asking, seen) = asking(Secrets::default());
    let file =
        |name: &str| wanted(&format!("{{ file = {{ path = '{}/{name}', poll = '10 ms' }} }}", folder.path().display()));
    asking.follow(vec![file("a"), file("b")]);
    while next_probe(&seen).1.attempt < 5 {}
    asking.follow(vec![file("b")]);
    std::fs::write(folder.path().join("a"), "").unwrap();
    std::fs::write(folder.path().join("b"), "").unwrap();
    let accepted = std::iter::repeat_with(|| next_probe(&seen).1).find(|probe| probe.accepted).unwrap();
    assert!(accepted.target.ends_with("/b") && accepted.by == Evidence::File);
    asking.finish();
    assert!(seen.iter().all(|seen| !matches!(seen.what, Observed::Event(What::Probe(Probe { accepted: true, .. })))));
}

#[test]
fn connections_and_files_are_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let attempt = |when: &str| {
        let wanted = wanted(when);
        let listener = Listener { tell: &|_| {}, live: &|| true, heard: &|| {} };
        let attempt = Asker::of(&wanted.condition, &wanted.values, &Secrets::default()).attempt(&listener);
        attempt.wrong.unwrap_or_else(|| "accepted".to_string())
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_eq!(attempt(&format!("{{ tcp = '127.0.0.1:{port}' }}")), "accepted");
    drop(listener);
    assert_eq!(attempt(&format!("{{ tcp = '127.0.0.1:{port}' }}")), "refused");
    assert_eq!(attempt(&format!("{{ http = 'http://127.0.0.1:{port}' }}")), "refused");

    let unix = format!("{{ unix = '{}' }}", path("socket"));
    assert_eq!(attempt(&unix), "not there");
    let listener = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    assert_eq!(attempt(&unix), "accepted");
    drop(listener);
    assert_eq!(attempt(&unix), "refused");
    let _datagram = std::os::unix::net::UnixDatagram::bind(path("datagram")).unwrap();
    assert_eq!(attempt(&format!("{{ unix = '{}' }}", path("datagram"))), "no stream socket");

    let file = format!("{{ file = {{ path = '{}', matches = 'do+ne' }} }}", path("file"));
    assert_eq!(attempt(&file), "not there");
    std::fs::write(path("file"), b"\xff not").unwrap();
    assert_eq!(attempt(&file), "does not match");
    std::fs::write(path("file"), b"\xff done").unwrap();
    assert_eq!(attempt(&file), "accepted");
    assert_eq!(attempt(&format!("{{ file = {{ path = '{}', matches = 'x' }} }}", path(""))), "no regular file");
    assert_eq!(attempt(&format!("{{ file = '{}' }}", path(""))), "accepted");
    assert_eq!(
        attempt(&format!("{{ http = {{ url = 'https://127.0.0.1:{port}', ca = '{}' }} }}", path("none"))),
        "the certificates cannot be read: not there"
    );
}

#[test]
fn another_machine_is_named_before_it_is_asked() {
    let secrets = Secrets::from_environment(&["K".to_string()], |_| Some("sesame".into())).unwrap();
    let warning = |when: &str| {
        let wanted = wanted(when);
        Asker::of(&wanted.condition, &wanted.values, &secrets).warning("s").unwrap_or_default()
    };
    assert!(warning("{ http = 'http://example.org/' }").contains("sent a secret without encryption"));
    assert!(!warning("{ http = 'https://example.org/' }").contains("secret"));
    assert!(warning("{ tcp = 'example.org:80' }").contains("not this machine"));
    for local in ["{ http = 'http://localhost:1/' }", "{ http = 'http://[::1]:1/' }", "{ tcp = '127.0.0.1:1' }"] {
        assert_eq!(warning(local), "");
    }
}

#[test]
fn a_header_from_the_environment_is_checked() {
    let from = |asked: &str, value: Option<&str>| {
        Secrets::from_environment(&[asked.to_string()], |_| value.map(Into::into)).map(|_| ())
    };
    assert_eq!(from("X-Key=K", Some("v")), Ok(()));
    for (asked, value, wrong) in [
        ("a b=K", Some("v"), "cannot be a header"),
        ("K", None, "`K` is not set"),
        ("K", Some(""), "`K` is not set"),
        ("K", Some("a\nb"), "holds what no header can"),
    ] {
        let problem = from(asked, value).unwrap_err();
        assert!(problem.contains(wrong) && !problem.contains("a\nb"), "{problem}");
    }
    let secrets = Secrets::from_environment(&["K".to_string()], |_| Some("Bearer open sesame".into())).unwrap();
    assert_eq!(format!("{secrets:?}"), "1 headers");
    assert_eq!(secrets.clean("say sesame, or open"), "say ***, or open");
}
