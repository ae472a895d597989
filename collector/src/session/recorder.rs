//! The recorder: runs a session, from its socket to its totals.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;
use gputrace_wire::handshake::{self, Head};

use crate::batch::{Batch, SessionBegin, SizeLimit};
use crate::command_line;
use crate::error::Error;
use crate::flight_recorder::{Dump, Dumper, Window, WriteDump};
use crate::model::sink::Sink;
use crate::model::{Model, Totals};
use crate::session::bound::Bound;
use crate::session::device_sampling::{DeviceSampler, DeviceSampling};
use crate::session::drain::{Drain, DrainConfig};
use crate::session::handle::Handle;
use crate::session::last::{Last, StreamResult};
use crate::session::listener::{self, SessionSocket};
use crate::session::peer;
use crate::session::processing::{self, Keep};
use crate::session::rotation::{Rotation, RotationConfig};
use crate::session::shared::Shared;
use crate::session::status::SharedStatus;
use crate::session::step::Step;
use crate::session::step_sender::StepSender;
use crate::session::store::{OnTraceEvent, Store};
use crate::session::threads::spawn;
use crate::stream::clock;
use crate::trace_file::TraceWriter;

/// How the note of a process begins whose `cuInit` failed (`producer/src/untraced.rs`).
const NOT_INITIALISED: &str = "cuInit ";

/// The most batches between the two threads, each of at most half a megabyte: how far the processing thread
/// may fall behind before entries stay in the rings.
const BATCHES_WAITING: usize = 64;
/// Where processes come from.
#[derive(Debug)]
pub enum ProcessSource {
    /// Any process of this user that connects to `directory`/socket. The folder is created if necessary, for
    /// this user only.
    Listen { directory: PathBuf },
    /// The same for a daemon: processes that still run at its end join the collector that listens there next,
    /// with the entries that were not stored here.
    Daemon { directory: PathBuf },
    /// A single process at the other end of a SOCK_SEQPACKET socket.
    Connected(OwnedFd),
}

/// Configures a flight recorder, which keeps the last part of the stream and writes the trace file at the
/// end.
pub struct FlightConfig {
    pub window: Duration,
    pub bytes_max: usize,
    /// Writes a dump, on a thread of its own.
    pub write: WriteDump,
}

impl std::fmt::Debug for FlightConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlightConfig").field("window", &self.window).finish_non_exhaustive()
    }
}

pub struct RecorderConfig {
    pub source: ProcessSource,
    pub trace_path: PathBuf,
    /// Times that are 0 are filled in.
    pub begin: SessionBegin,
    pub flight: Option<FlightConfig>,
    /// The greatest size of the trace file. Ignored with a flight recorder, which is bounded itself.
    pub max_bytes: Option<u64>,
    /// Cuts the trace into files; not together with `flight` or `max_bytes`.
    pub rotation: Option<RotationConfig>,
    /// Called on the processing thread when the trace file's state changes.
    pub on_trace_event: Option<OnTraceEvent>,
    /// Samples the devices that the processes use; `None`: nobody does.
    pub device_sampler: Option<Box<dyn DeviceSampler>>,
}

impl std::fmt::Debug for RecorderConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RecorderConfig { source, trace_path, .. } = self;
        let fields = &mut f.debug_struct("RecorderConfig");
        fields.field("source", source).field("trace_path", trace_path).finish_non_exhaustive()
    }
}

/// Ends [`Recorder::wait_for_end`] even if the drain thread panics.
struct EndedGuard(Arc<Shared>);

impl Drop for EndedGuard {
    fn drop(&mut self) {
        self.0.set_ended();
    }
}

/// A running session.
pub struct Recorder<S> {
    shared: Arc<Shared>,
    /// Dropping it removes the socket.
    session_socket: Option<SessionSocket>,
    /// Dropped to end the stream.
    stream: Option<Sender<Step>>,
    drain: Option<JoinHandle<Option<OwnedFd>>>,
    processing: Option<JoinHandle<StreamResult<S>>>,
    handle: Handle,
    begin: SessionBegin,
}

/// A session that has ended.
#[derive(Debug)]
pub struct Recording<S> {
    pub totals: Totals,
    pub sink: S,
    pub trace_path: PathBuf,
    pub trace_bytes: u64,
    /// Why the trace file is incomplete; the totals are complete in any case.
    pub trace_error: Option<Error>,
    /// The limit of the trace file's size, if it was reached, and what the file lacks because of it.
    pub size_limit: Option<SizeLimit>,
    /// The dumps of the session, including those that failed.
    pub dumps: Vec<Dump>,
    /// How many trace files were closed at cuts, and how many of those were deleted.
    pub rotated: (u64, u64),
    /// Lines about processes that should have been recorded and were not.
    pub refused: Vec<String>,
    connection: Option<OwnedFd>,
}

impl<S: Sink + Send + 'static> Recorder<S> {
    /// Creates the trace file and the socket and starts to record.
    pub fn start(config: RecorderConfig, sink: S) -> Result<Recorder<S>, Error> {
        let RecorderConfig { source, trace_path, mut begin, flight, max_bytes, rotation, .. } = config;
        let (on_trace_event, device_sampler) = (config.on_trace_event, config.device_sampler);
        let writer = TraceWriter::create(&trace_path)?;
        // A flight recorder stores only at the end: the rings cannot hold entries until then.
        let can_be_taken_over = matches!(source, ProcessSource::Daemon { .. }) && flight.is_none();
        let (listener, connected, session_socket) = match source {
            ProcessSource::Listen { directory } | ProcessSource::Daemon { directory } => {
                let (listener, session_socket) = listener::listen_in(&directory)?;
                (Some(listener), None, Some(session_socket))
            }
            ProcessSource::Connected(socket) => (None, Some(socket), None),
        };
        let begin_ns = clock::monotonic_ns();
        if begin.monotonic_ns == 0 {
            begin.monotonic_ns = begin_ns;
        }
        if begin.realtime_ns == 0 {
            begin.realtime_ns = clock::realtime_ns();
        }
        begin.command = command_line::masked(&begin.command);
        let shared = Arc::new(Shared::new()?);
        let (stream, batches) = crossbeam_channel::bounded(BATCHES_WAITING);
        // The channel is empty, so this does not block.
        let _ = stream.send(Step::Batch(Batch::SessionBegin(begin.clone())));
        let keeps = flight.as_ref().map(|flight| flight.window);
        let status = Arc::new(SharedStatus::new(keeps));
        let (begin_ns, status_of_handle) = (begin.monotonic_ns, Arc::clone(&status));
        let handle = Handle { shared: Arc::clone(&shared), status: status_of_handle, begin_ns };

        let no_compressor = |source| Error::System { operation: "making a compressor", source };
        let keep = match flight {
            None => {
                let bound = max_bytes.map(Bound::new).transpose().map_err(no_compressor)?;
                let store = Store::new(writer, bound, on_trace_event);
                let rotation = rotation.map(Rotation::start).transpose()?.map(Box::new);
                Keep::All { store, model: Box::new(Model::new(sink)), shared: Arc::clone(&shared), rotation }
            }
            Some(FlightConfig { window, bytes_max, write }) => {
                let length_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
                let window = Window::new(length_ns, bytes_max).map_err(no_compressor)?;
                Keep::Last { last: Last::new(window, Dumper::start(write)?, writer), sink }
            }
        };
        let sampling = DeviceSampling::new(device_sampler);
        let processing = spawn("digest", move || processing::run(&batches, keep, sampling, &status))?;
        let mut recorder = Recorder {
            shared: Arc::clone(&shared),
            session_socket,
            stream: Some(stream.clone()),
            drain: None,
            processing: Some(processing),
            handle,
            begin,
        };
        let config = DrainConfig { listener, connected, can_be_taken_over, window: keeps };
        recorder.drain = Some(spawn("drain", move || {
            let _guard = EndedGuard(Arc::clone(&shared));
            // The session's begin is in the stream already.
            Drain::new(config, shared, StepSender::new(stream, 1)).run()
        })?);
        Ok(recorder)
    }

    /// A handle by which other threads request dumps and the session's status.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The stream's first batch, from which all ids of the session's spans are derived.
    pub fn begin(&self) -> &SessionBegin {
        &self.begin
    }

    /// Where processes connect; `None` for a single connected process.
    pub fn socket_path(&self) -> Option<&Path> {
        self.session_socket.as_ref().map(SessionSocket::path)
    }

    /// Blocks until the single connected process has sent good-bye or is gone.
    pub fn wait_for_end(&self) {
        self.shared.wait_for_end();
    }

    /// Whether all processes that ever joined have left.
    pub fn has_ended(&self) -> bool {
        self.shared.has_ended()
    }

    /// Waits at most `grace` for processes that run on, reads what all have published, and
    /// closes the trace file.
    pub fn finish(mut self, grace: Duration) -> Result<Recording<S>, Error> {
        self.shared.order_finish(grace);
        let lost = |name| Error::ThreadLost { name };
        let drain = self.drain.take().ok_or(lost("drain"))?;
        let drained = drain.join();
        let (not_initialised, refused) = self.unrecorded();
        if let Some(stream) = self.stream.take() {
            let wall_ns = clock::monotonic_ns().saturating_sub(self.begin.monotonic_ns);
            if !refused.is_empty() {
                let _ = stream.send(Step::Batch(Batch::Unrecorded(refused.clone())));
            }
            let _ = stream.send(Step::Batch(Batch::SessionEnd { wall_ns }));
        }
        let processing = self.processing.take().ok_or(lost("digest"))?;
        let (modelled, stored, dumps, rotated) = processing.join().map_err(|_| lost("digest"))?;
        let (mut totals, sink) = modelled.ok_or(lost("digest"))?;
        totals.not_in_trace(stored.left_out);
        let connection = drained.map_err(|_| lost("drain"))?;
        // A process whose later `cuInit` succeeded is recorded itself.
        let is_there = |pid| totals.processes.iter().any(|process| process.begin.pid == pid);
        totals.not_initialised = not_initialised.into_iter().filter(|(pid, _)| !is_there(*pid)).collect();
        Ok(Recording {
            totals,
            sink,
            trace_path: stored.path,
            trace_bytes: stored.whole_bytes,
            trace_error: stored.error,
            size_limit: stored.size_limit,
            dumps,
            rotated,
            refused,
            connection,
        })
    }
}

impl<S> Recorder<S> {
    /// Processes whose `cuInit` failed, with what it returned; and lines about those that are not recorded.
    fn unrecorded(&self) -> (Vec<(u32, u16)>, Vec<String>) {
        let mut not_initialised = Vec::new();
        for (pid, why) in self.session_socket.as_ref().map(SessionSocket::untraced).unwrap_or_default() {
            match why.strip_prefix(NOT_INITIALISED).and_then(|status| status.parse().ok()) {
                Some(status) => not_initialised.push((pid, status)),
                None => self.shared.refuse_unless_known(pid, &why),
            }
        }
        (not_initialised, self.shared.take_refused())
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
        if let Some(processing) = self.processing.take() {
            let _ = processing.join();
        }
        self.session_socket = None;
    }
}

impl<S> Recording<S> {
    /// Replaces the sink, and returns what else `change` makes of it.
    pub fn with_sink<T, U>(self, change: impl FnOnce(S) -> (T, U)) -> (Recording<T>, U) {
        let (sink, other) = change(self.sink);
        let recording = Recording {
            totals: self.totals,
            sink,
            trace_path: self.trace_path,
            trace_bytes: self.trace_bytes,
            trace_error: self.trace_error,
            size_limit: self.size_limit,
            dumps: self.dumps,
            rotated: self.rotated,
            refused: self.refused,
            connection: self.connection,
        };
        (recording, other)
    }

    /// Sends the single connected process the message that the outputs exist. False if it is gone.
    pub fn reply(&self, text: &str) -> bool {
        let head = Head::new(handshake::kind::DONE, 0, 0, 0);
        self.connection.as_ref().is_some_and(|connection| peer::send_message(connection, head, text))
    }
}
