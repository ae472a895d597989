//! The recorder: a session from its socket to its totals.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gputrace_wire::atomic::{AtomicU64, Ordering};
use gputrace_wire::handshake::{self, Head};
use rustix::event::{EventfdFlags, eventfd};

use crate::batch::{Batch, SessionBegin};
use crate::command_line;
use crate::error::Error;
use crate::flight_recorder::{self, Dump, DumpRequest, Dumper, Window, WriteDump};
use crate::model::Totals;
use crate::model::operation::Sink;
use crate::session::board::Board;
use crate::session::death::Death;
use crate::session::digest::{self, Digested};
use crate::session::drain::{self, Drain};
use crate::session::handle::Handle;
use crate::session::listener::{self, Place};
use crate::session::out::Out;
use crate::session::peer;
use crate::session::store::{HearsTraceNews, Store};
use crate::trace_file::TraceWriter;

/// Batches between the two threads: with half a megabyte each at most, what the digest thread
/// may fall behind before the rings have to hold the rest.
const BATCHES_WAITING: usize = 64;
/// Dumps that are asked for and not yet begun.
const DUMPS_WAITING: usize = 4;
/// Refusals that are remembered.
const REFUSED_MAX: usize = 100;

/// Where processes come from.
#[derive(Debug)]
pub enum Source {
    /// Any process of this user that connects to `directory`/socket. The folder is made if it
    /// is not there, for this user only.
    Listen { directory: PathBuf },
    /// The same, and processes that run on join whoever listens there next, with what was not
    /// stored here.
    Standing { directory: PathBuf },
    /// One process at the other end of a SOCK_SEQPACKET socket.
    Connected(OwnedFd),
}

/// Keeps the last part of the stream only; the trace file is written at the end.
pub struct FlightConfig {
    pub window: Duration,
    pub bytes_max: usize,
    /// Writes what is held when somebody asks, on a thread of its own.
    pub write: WriteDump,
}

impl std::fmt::Debug for FlightConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlightConfig").field("window", &self.window).finish_non_exhaustive()
    }
}

/// What crosses from the drain thread to the digest thread, in order.
pub(crate) enum Step {
    Batch(Batch),
    /// What a process died of; its end comes next.
    Death {
        process: u32,
        death: Death,
    },
    /// Somebody wants what is held up to here.
    Dump(DumpRequest),
}

#[derive(Debug)]
pub struct RecorderConfig {
    pub source: Source,
    pub trace_path: PathBuf,
    /// Times left 0 are filled in.
    pub begin: SessionBegin,
    pub flight: Option<FlightConfig>,
    /// Hears at once, on the digest thread, what becomes of the trace file.
    pub hears_trace_news: Option<HearsTraceNews>,
}

/// What the drain thread is to do, and what it tells meanwhile.
pub(super) struct Shared {
    /// Readable when there are new orders.
    pub wake: OwnedFd,
    orders: Mutex<Orders>,
    ended: Mutex<bool>,
    ended_changed: Condvar,
    refused: Mutex<Vec<String>>,
    /// Refusals beyond those that are remembered.
    refused_more: AtomicU64,
    /// Batches that the digest thread is done with.
    pub stored: AtomicU64,
    /// `None` once nobody takes them any more.
    dumps: Mutex<Option<Vec<DumpRequest>>>,
    /// A process that somebody waited for, and what it died of.
    death: Mutex<Option<(u32, Death)>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Orders {
    pub finish: bool,
    /// How long to wait for processes that run on.
    pub deadline: Instant,
}

/// A thread that panicked held no lock across anything that can leave the value half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new() -> Result<Shared, Error> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::System { operation: "eventfd", source: errno.into() })?;
        Ok(Shared {
            wake,
            orders: Mutex::new(Orders { finish: false, deadline: Instant::now() }),
            ended: Mutex::new(false),
            ended_changed: Condvar::new(),
            refused: Mutex::new(Vec::new()),
            refused_more: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            dumps: Mutex::new(Some(Vec::new())),
            death: Mutex::new(None),
        })
    }

    fn order_finish(&self, grace: Duration) {
        *lock(&self.orders) = Orders { finish: true, deadline: Instant::now() + grace };
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    pub fn order_dump(&self, request: DumpRequest) -> Result<(), &'static str> {
        let mut dumps = lock(&self.dumps);
        match &mut *dumps {
            None => return Err("the session is at its end, and writes what it holds"),
            Some(waiting) if waiting.len() >= DUMPS_WAITING => {
                return Err("too many dumps were asked for at once");
            }
            Some(waiting) => waiting.push(request),
        }
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        Ok(())
    }

    pub fn take_dumps(&self) -> Vec<DumpRequest> {
        lock(&self.dumps).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Nobody takes them any more; those who wait hear so.
    pub fn close_dumps(&self) {
        *lock(&self.dumps) = None;
    }

    pub fn note_death(&self, pid: u32, death: Death) {
        *lock(&self.death) = Some((pid, death));
    }

    /// What a process died of that the recorder's own thread waited for.
    pub fn death_of(&self, pid: u32) -> Option<Death> {
        lock(&self.death).filter(|(dead, _)| *dead == pid).map(|(_, death)| death)
    }

    pub fn orders(&self) -> Orders {
        *lock(&self.orders)
    }

    pub fn clear_wake(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
    }

    /// The single process has ended, or never joined.
    pub fn set_ended(&self) {
        *lock(&self.ended) = true;
        self.ended_changed.notify_all();
    }

    /// Remembers that a peer is not recorded, and why.
    pub fn refuse(&self, pid: u32, why: &str) {
        let mut refused = lock(&self.refused);
        if refused.len() < REFUSED_MAX {
            refused.push(format!("process {pid}: {why}"));
        } else {
            self.refused_more.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// However the drain thread ends, nobody waits for the process's end for ever.
struct EndedGuard(Arc<Shared>);

impl Drop for EndedGuard {
    fn drop(&mut self) {
        self.0.set_ended();
    }
}

/// What the digest thread leaves: nothing if it could not model what it held, and earlier dumps.
type Outcome<S> = (Option<Digested<S>>, Vec<Dump>);

/// A running session.
pub struct Recorder<S> {
    shared: Arc<Shared>,
    /// Its drop removes the socket.
    place: Option<Place>,
    /// Dropped to end the stream.
    stream: Option<Sender<Step>>,
    drain: Option<JoinHandle<Option<OwnedFd>>>,
    digest: Option<JoinHandle<Outcome<S>>>,
    handle: Handle,
    begin_ns: u64,
}

/// A session that has ended.
#[derive(Debug)]
pub struct Recording<S> {
    pub totals: Totals,
    pub sink: S,
    pub trace_path: PathBuf,
    pub trace_bytes: u64,
    /// Why the trace file is not whole; the totals are, in any case.
    pub trace_error: Option<Error>,
    /// What was dumped while the session went on, and what could not be.
    pub dumps: Vec<Dump>,
    /// Processes that wanted to be recorded and were not, and why.
    pub refused: Vec<String>,
    connection: Option<OwnedFd>,
}

impl<S: Sink + Send + 'static> Recorder<S> {
    /// Creates the trace file and the socket and starts to record.
    pub fn start(config: RecorderConfig, sink: S) -> Result<Recorder<S>, Error> {
        let RecorderConfig { source, trace_path, mut begin, flight, hears_trace_news } = config;
        let writer = TraceWriter::create(&trace_path)?;
        // A flight recorder stores at the end only: nothing can be held for it until then.
        let standing = matches!(source, Source::Standing { .. }) && flight.is_none();
        let (listener, connected, place) = match source {
            Source::Listen { directory } | Source::Standing { directory } => {
                let (listener, place) = listener::listen_in(&directory)?;
                (Some(listener), None, Some(place))
            }
            Source::Connected(socket) => (None, Some(socket), None),
        };
        let begin_ns = drain::monotonic_ns();
        if begin.monotonic_ns == 0 {
            begin.monotonic_ns = begin_ns;
        }
        if begin.realtime_ns == 0 {
            begin.realtime_ns = drain::realtime_ns();
        }
        begin.command = command_line::masked(&begin.command);
        let begin_ns = begin.monotonic_ns;
        let shared = Arc::new(Shared::new()?);
        let (stream, batches) = crossbeam_channel::bounded(BATCHES_WAITING);
        // There is room for the first; nobody else sends yet.
        let _ = stream.send(Step::Batch(Batch::SessionBegin(begin)));
        let keeps = flight.as_ref().map(|flight| flight.window);
        let board = Arc::new(Board::new(keeps));
        let handle = Handle { shared: Arc::clone(&shared), board: Arc::clone(&board) };

        let digest = match flight {
            None => {
                let shared = Arc::clone(&shared);
                let store = Store::new(writer, hears_trace_news);
                let run = move || digest::run(&batches, store, &shared.stored, &board, sink);
                spawn("digest", move || (Some(run()), Vec::new()))?
            }
            Some(FlightConfig { window, bytes_max, write }) => {
                let length_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
                let window = Window::new(length_ns, bytes_max)
                    .map_err(|source| Error::System { operation: "making a compressor", source })?;
                let dumper = Dumper::start(write)?;
                spawn("digest", move || flight_recorder::run(&batches, window, dumper, writer, &board, sink))?
            }
        };
        let mut recorder = Recorder {
            shared: Arc::clone(&shared),
            place,
            stream: Some(stream.clone()),
            drain: None,
            digest: Some(digest),
            handle,
            begin_ns,
        };
        recorder.drain = Some(spawn("drain", move || {
            let _guard = EndedGuard(Arc::clone(&shared));
            // The session's begin is in the stream already.
            Drain::new(listener, connected, shared, Out::new(stream, 1), standing, keeps).run()
        })?);
        Ok(recorder)
    }

    /// By which other threads ask for dumps and the session's state.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Where processes connect; `None` for a single connected process.
    pub fn socket_path(&self) -> Option<&Path> {
        self.place.as_ref().map(Place::path)
    }

    /// Blocks until the single connected process has said good-bye or is gone.
    pub fn wait_for_end(&self) {
        let mut ended = lock(&self.shared.ended);
        while !*ended {
            ended = self.shared.ended_changed.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether all processes that ever joined have left.
    pub fn has_ended(&self) -> bool {
        *lock(&self.shared.ended)
    }

    /// Waits at most `grace` for processes that run on, reads what all have published, and
    /// closes the trace file.
    pub fn finish(mut self, grace: Duration) -> Result<Recording<S>, Error> {
        self.shared.order_finish(grace);
        let lost = |name| Error::ThreadLost { name };
        let drain = self.drain.take().ok_or(lost("drain"))?;
        let drained = drain.join();
        if let Some(stream) = self.stream.take() {
            let wall_ns = drain::monotonic_ns().saturating_sub(self.begin_ns);
            let _ = stream.send(Step::Batch(Batch::SessionEnd { wall_ns }));
        }
        let digest = self.digest.take().ok_or(lost("digest"))?;
        let (digested, dumps) = digest.join().map_err(|_| lost("digest"))?;
        let digested = digested.ok_or(lost("digest"))?;
        let connection = drained.map_err(|_| lost("drain"))?;
        let Digested { mut totals, sink, trace_path, trace_bytes, trace_error } = digested;
        let mut refused = std::mem::take(&mut *lock(&self.shared.refused));
        let mut more = self.shared.refused_more.load(Ordering::Relaxed);
        for (pid, why) in self.place.as_ref().map(Place::untraced).unwrap_or_default() {
            let who = format!("process {pid}: ");
            match refused.len() {
                _ if refused.iter().any(|known| known.starts_with(&who)) => {}
                0..REFUSED_MAX => refused.push(who + &why),
                _ => more += 1,
            }
        }
        if more > 0 {
            refused.push(format!("{more} more"));
        }
        totals.unrecorded.clone_from(&refused);
        Ok(Recording { totals, sink, trace_path, trace_bytes, trace_error, dumps, refused, connection })
    }
}

impl<S> Drop for Recorder<S> {
    /// Without `finish` the threads still end, and the file holds what was published.
    fn drop(&mut self) {
        self.shared.order_finish(Duration::ZERO);
        if let Some(drain) = self.drain.take() {
            let _ = drain.join();
        }
        self.stream = None;
        if let Some(digest) = self.digest.take() {
            let _ = digest.join();
        }
        self.place = None;
    }
}

impl<S> Recording<S> {
    /// Tells the single connected process that the outputs are there. False if it is gone.
    pub fn reply(&self, text: &str) -> bool {
        let head = Head::new(handshake::kind::DONE, 0, 0, 0);
        self.connection.as_ref().is_some_and(|connection| peer::tell(connection, head, text))
    }
}

fn spawn<T: Send + 'static>(
    name: &'static str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let builder = std::thread::Builder::new().name(format!("gputrace-{name}"));
    builder.spawn(run).map_err(|source| Error::Thread { name, source })
}
