//! The thread that asks the drivers. It opens them, reads what is in use once by itself (before the exec), and then once
//! for each time it is asked. Whoever asks goes on at once; whoever takes gets what is there.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cuda::{Asker, Cuda};
use super::drm::Drm;
use super::nvml::Library;
use super::visible::Wishes;
use super::{Device, DeviceReading, Place, Shown};
use crate::clock::Mono;
use crate::event::Pid;

/// Lists of processes and what is as dear take no more than one part in so many of the time.
const SHARE: u64 = 10;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The processes of the launch.
    pub pids: Vec<Pid>,
    /// Whether everything is wanted, however dear.
    pub closely: bool,
}

/// What there is to read.
#[derive(Clone, Debug, Default)]
pub struct Opened {
    pub devices: Vec<Device>,
    pub sources: Vec<String>,
    /// Why a source has none.
    pub reasons: Vec<String>,
    /// What there is to know of the CUDA driver, where it was asked for.
    pub notes: Vec<String>,
    /// Whether there are devices that could not be opened.
    pub is_blind: bool,
}

#[derive(Default)]
struct State {
    wanted: Option<Request>,
    /// When what is being read, or waits to be, was asked for.
    since: Option<Mono>,
    ready: Option<DeviceReading>,
    opened: Option<Opened>,
    /// Whether there is nothing to read.
    is_alone: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is so, or for as long as `limit`.
    fn wait(&self, limit: Duration, is_so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        while !is_so(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}

/// The asker's end. The thread is never waited for: a driver that hangs would hold the command's end. It has nothing
/// to give back that the process's end does not.
pub struct Reader {
    shared: Arc<Shared>,
    /// The process that asks the CUDA driver.
    helper: Option<Pid>,
}

impl Reader {
    /// To be called by a thread that lives as long as the process does ([`Asker::start`]).
    pub fn start(place: Place) -> std::io::Result<Reader> {
        let shared = Arc::new(Shared::default());
        shared.lock().since = Some(Mono::now());
        let own = Arc::clone(&shared);
        let asker = place.cuda.as_ref().map(Asker::start);
        let helper = asker.as_ref().and_then(|asker| asker.as_ref().ok()).map(Asker::pid);
        std::thread::Builder::new().name("devices".into()).spawn(move || serve(&own, &place, asker))?;
        Ok(Reader { shared, helper })
    }

    /// A process that this one started, which is none of the launch's.
    pub fn helper(&self) -> Option<Pid> {
        self.helper
    }

    /// The reading that the thread makes by itself, if it is there in time.
    pub fn first(&self, limit: Duration) -> Option<DeviceReading> {
        self.shared.wait(limit, |state| state.ready.is_some() || state.is_alone).ready.take()
    }

    pub fn opened(&self) -> Option<Opened> {
        self.shared.lock().opened.clone()
    }

    /// Whether it is known that there is nothing to read.
    pub fn is_alone(&self) -> bool {
        self.shared.lock().is_alone
    }

    pub fn ask(&self, request: Request) {
        let mut state = self.shared.lock();
        state.since.get_or_insert(Mono::now());
        state.wanted = Some(request);
        self.shared.changed.notify_all();
    }

    /// What was read since the last time; where nothing was, `wait` is given it.
    pub fn take(&self, wait: Duration) -> Option<DeviceReading> {
        self.shared.wait(wait, |state| state.since.is_none()).ready.take()
    }

    /// How long the oldest question has been waiting for its answer.
    pub fn waiting_ns(&self, now: Mono) -> u64 {
        self.shared.lock().since.map_or(0, |since| now.since(since))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.lock().is_alone = true;
        self.shared.changed.notify_all();
    }
}

/// The drivers, open.
struct Drivers {
    nvml: Option<Library>,
    cuda: Option<Cuda>,
    /// How many devices are NVIDIA's.
    count: usize,
    drm: Drm,
    dear_ns: u64,
    dear_at: Option<Mono>,
}

impl Drivers {
    fn open(place: &Place, asker: Option<Result<Asker, String>>) -> (Drivers, Opened) {
        let mut opened = Opened::default();
        let nvml = match Library::open(place.nvml.as_deref()) {
            Ok(library) => {
                opened.devices.extend_from_slice(library.devices());
                opened.reasons.extend(library.note());
                opened.is_blind = library.is_blind();
                if !library.devices().is_empty() {
                    opened.sources.push("nvml".to_owned());
                }
                Some(library)
            }
            Err(why) => {
                opened.reasons.push(format!("NVML: {why}"));
                None
            }
        };
        let known = opened.devices.len();
        let mut cuda = None;
        if let Some(asker) = asker {
            (cuda, opened.notes) = Cuda::begin(asker, &mut opened.devices, &Wishes::of_environment());
            if cuda.is_some() {
                opened.sources.push("cuda".to_owned());
            } else if known == 0 {
                opened.reasons.extend(opened.notes.iter().cloned());
            }
        }
        let count = opened.devices.len();
        // Where NVIDIA's own libraries speak for its devices, the kernel's files have nothing to add.
        let drm = Drm::open(&place.sys(), &place.proc(), count > 0);
        if drm.devices().is_empty() {
            opened.reasons.push(drm.why_none());
        } else {
            opened.sources.push("drm".to_owned());
        }
        opened.devices.extend_from_slice(drm.devices());
        (Drivers { nvml, cuda, count, drm, dear_ns: 0, dear_at: None }, opened)
    }

    fn read(&mut self, request: &Request) -> DeviceReading {
        let began = Mono::now();
        let mut devices: Vec<Shown> = self.nvml.as_mut().map(Library::memory).unwrap_or_default();
        let listed = devices.len();
        let nobody = || Shown { reason: Some("the CUDA driver was not asked".to_owned()), ..Shown::default() };
        devices.resize_with(self.count, nobody);
        if let Some(cuda) = &mut self.cuda {
            cuda.memory(&mut devices);
        }
        devices.extend(self.drm.memory());
        let cheap = Mono::now();
        let due = self.dear_at.is_none_or(|at| cheap.since(at) >= self.dear_ns.saturating_mul(SHARE));
        if due || request.closely {
            self.dear_at = Some(cheap);
            if let Some(nvml) = &mut self.nvml {
                nvml.processes(&request.pids, &mut devices[..listed]);
            }
            for shown in &mut devices[listed..self.count] {
                shown.processes = Some(Err("the CUDA driver does not tell whose memory is in use".to_owned()));
            }
            self.drm.processes(&request.pids, &mut devices[self.count..]);
            self.dear_ns = Mono::now().since(cheap);
        }
        DeviceReading { began, ended: Mono::now(), devices }
    }
}

fn serve(shared: &Shared, place: &Place, asker: Option<Result<Asker, String>>) {
    let (mut drivers, opened) = Drivers::open(place, asker);
    let is_alone = opened.devices.is_empty();
    {
        let mut state = shared.lock();
        state.opened = Some(opened);
        state.is_alone |= is_alone;
        shared.changed.notify_all();
        if state.is_alone {
            state.since = None;
            return;
        }
    }
    let mut request = Request { closely: true, ..Request::default() };
    let mut is_first = true;
    loop {
        let reading = drivers.read(&request);
        // Who had memory before the exec says nothing of the launch: its first look has the lists, however dear.
        if std::mem::take(&mut is_first) {
            drivers.dear_at = None;
        }
        let mut state = shared.lock();
        state.ready = Some(reading);
        if state.wanted.is_none() {
            state.since = None;
        }
        shared.changed.notify_all();
        while state.wanted.is_none() && !state.is_alone {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_alone {
            return;
        }
        request = state.wanted.take().unwrap_or_default();
        state.since = Some(Mono::now());
    }
}

/// What there is to read here, for whoever asks without a launch; an error where nothing answers in time.
pub fn open_for(place: Place, limit: Duration) -> Result<(Opened, Option<DeviceReading>), String> {
    let reader = Reader::start(place).map_err(|error| error.to_string())?;
    let first = reader.first(limit);
    match reader.opened() {
        Some(opened) => Ok((opened, first)),
        None => Err(format!("the devices' driver did not answer within {} ms", limit.as_millis())),
    }
}
