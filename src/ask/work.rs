//! Requests that stand for the work: each is asked until it is accepted, a stated number of them at a time.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::http::{Request, Secrets};
use super::{Attempt, Listener};
use crate::clock::Mono;
use crate::stage::asked::{self, Values};

/// One request of a workload, or one that is repeated: how it went.
pub(super) struct Answer {
    /// Which request it was, by its `id` or its number from 1.
    pub request: String,
    pub attempt: u64,
    pub began: Mono,
    pub ended: Mono,
    pub first_byte: Option<Mono>,
    pub bytes: Option<u64>,
    /// `None` if it was accepted.
    pub wrong: Option<String>,
}

/// A workload, and how far it has come.
pub(super) struct Work<'a> {
    requests: Vec<(String, Request<'a>, bool)>,
    concurrency: usize,
    shown: String,
    attempt: u64,
}

impl<'a> Work<'a> {
    pub fn of(work: &'a asked::Work, values: &'a Values, secrets: &'a Secrets) -> Result<Work<'a>, String> {
        let request = |(id, http): &'a (String, asked::Http)| {
            let request = Request::of(http, values, secrets).map_err(|why| format!("request {id}: {why}"))?;
            Ok((id.clone(), request, false))
        };
        let requests = work.each.iter().map(request).collect::<Result<Vec<_>, String>>()?;
        // A run that is matched again has the definition and not the requests.
        if requests.is_empty() {
            return Err("no requests".to_string());
        }
        Ok(Work { requests, concurrency: work.concurrency, shown: work.to_string(), attempt: 0 })
    }

    pub fn shown(&self) -> &str {
        &self.shown
    }

    pub fn first(&self) -> Option<&Request<'a>> {
        self.requests.first().map(|(_, request, _)| request)
    }

    /// Asks each that was not accepted yet once.
    pub fn attempt(&mut self, &Listener { tell, live, heard }: &Listener) -> Attempt {
        self.attempt += 1;
        let attempt = self.attempt;
        let next = AtomicUsize::new(0);
        let open: Vec<Mutex<&mut (String, Request<'a>, bool)>> =
            self.requests.iter_mut().filter(|(_, _, accepted)| !accepted).map(Mutex::new).collect();
        std::thread::scope(|scope| {
            let ask = || {
                while let Some(one) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !live() {
                        return;
                    }
                    let mut one = one.lock().unwrap_or_else(PoisonError::into_inner);
                    let (request, asked, accepted) = &mut **one;
                    let began = Mono::now();
                    let Attempt { wrong, first_byte, bytes, .. } = asked.attempt(heard);
                    *accepted = wrong.is_none();
                    let ended = Mono::now();
                    tell(Answer { request: request.clone(), attempt, began, ended, first_byte, bytes, wrong });
                }
            };
            for _ in 1..self.concurrency.min(open.len()) {
                // One fewer at a time where no thread is to be had.
                let _ = std::thread::Builder::new().name("asking".to_string()).spawn_scoped(scope, ask);
            }
            ask();
        });
        drop(open);
        let left = self.requests.iter().filter(|(_, _, accepted)| !accepted).count();
        match left {
            0 => Attempt::accepted(),
            left => Attempt::not_yet(format!("{left} of {} requests not accepted", self.requests.len())),
        }
    }
}
