//! The exporter's thread, and the handle by which other threads queue requests.

use std::fmt;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use crate::otlp::client::Client;
use crate::otlp::config::ExporterConfig;
use crate::otlp::queue::{EncodedRequest, REQUEST_MAX_BYTES};
use crate::otlp::signal_queue::{OnFull, SignalQueue, max_bytes};
use crate::otlp::status::ExportStatus;
use crate::otlp::worker::{OnDiagnostic, Reported, Worker};
use crate::otlp::{Protocol, Signal};

/// Produces requests. The exporter's thread asks it twice a second, when woken, and at the end.
pub trait RequestSource: Send {
    fn send(&mut self, to: &Sender);
}

const ASKED_EVERY: Duration = Duration::from_millis(500);
/// A request as JSON is at most so many times as long as in protobuf.
const JSON_FACTOR: usize = 4;

/// Queues requests, from any thread.
#[derive(Clone)]
pub struct Sender {
    queues: Arc<[(Arc<SignalQueue>, Protocol)]>,
    wake: Arc<Notify>,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.status()).finish()
    }
}

impl Sender {
    fn queue(&self, signal: Signal) -> Option<&(Arc<SignalQueue>, Protocol)> {
        self.queues.iter().find(|(queue, _)| queue.signal == signal)
    }

    pub fn sends(&self, signal: Signal) -> bool {
        self.queue(signal).is_some()
    }

    /// The most bytes of a request in protobuf.
    pub fn request_max_bytes(&self, signal: Signal) -> usize {
        match self.queue(signal) {
            Some((_, Protocol::HttpJson)) => REQUEST_MAX_BYTES / JSON_FACTOR,
            _ => REQUEST_MAX_BYTES,
        }
    }

    /// Queues a request. Requests of a signal that is not sent are ignored.
    pub fn send(&self, signal: Signal, request: EncodedRequest, on_full: OnFull) {
        if let Some((queue, _)) = self.queue(signal) {
            queue.push(request, on_full);
        }
    }

    /// Makes the exporter's thread ask its sources soon.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    pub fn status(&self) -> ExportStatus {
        let mut status = ExportStatus::default();
        for (queue, _) in self.queues.iter() {
            status.set(queue.signal, queue.status());
        }
        status
    }

    /// Why the queue of a signal was closed, if one was.
    pub fn closed_because(&self) -> Option<String> {
        self.queues.iter().find_map(|(queue, _)| queue.closed())
    }
}

/// The running thread. Dropping this value ends it.
#[derive(Debug)]
pub struct Exporter {
    sender: Sender,
    end: watch::Sender<Option<Instant>>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Reads certificates and starts the thread. `patience`: how long to go on while the back end accepts
    /// nothing; `None`: until the end is ordered.
    pub fn start(
        config: ExporterConfig,
        sources: Vec<Box<dyn RequestSource>>,
        on_diagnostic: OnDiagnostic,
        patience: Option<Duration>,
    ) -> Result<Exporter, String> {
        let mut queues = Vec::new();
        let mut clients = Vec::new();
        for target in config.targets {
            queues.push((Arc::new(SignalQueue::new(&target)), target.protocol));
            clients.push(Client::new(target)?);
        }
        let sender = Sender { queues: queues.into(), wake: Arc::new(Notify::new()) };
        let (end, ordered) = watch::channel(None);
        let (drain, drains) = watch::channel(None);
        let workers: Vec<_> = sender
            .queues
            .iter()
            .zip(clients)
            .map(|((queue, _), client)| Worker {
                signal_queue: Arc::clone(queue),
                client,
                on_diagnostic: Arc::clone(&on_diagnostic),
                end: drains.clone(),
                patience,
                reported: Reported::default(),
            })
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            // For host name look-ups, which may hang.
            .max_blocking_threads(2)
            .build()
            .map_err(|error| format!("the sender cannot start: {error}"))?;
        let asked = sender.clone();
        let send = move || {
            runtime.block_on(send(asked.clone(), sources, workers, on_diagnostic, ordered, drain));
            runtime.shutdown_background();
            for (queue, _) in asked.queues.iter() {
                queue.close("the sender has ended");
            }
        };
        let thread = Builder::new()
            .name("gputrace-otlp".into())
            .spawn(send)
            .map_err(|error| format!("the sender cannot start: {error}"))?;
        Ok(Exporter { sender, end, thread: Some(thread) })
    }

    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Makes the thread end once all is sent, or when the time is up. A later call may bring the deadline
    /// forward.
    pub fn order_end(&self, limit: Duration) {
        // A larger limit would overflow.
        let limit = limit.min(Duration::from_secs(365 * 86_400));
        self.end.send_if_modified(|end| {
            let asked = Instant::now() + limit;
            let is_sooner = end.is_none_or(|end| asked < end);
            if is_sooner {
                *end = Some(asked);
            }
            is_sooner
        });
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Orders the end, if that is not done yet, and waits for it.
    pub fn finish(mut self, limit: Duration) -> ExportStatus {
        self.end_within(limit);
        self.sender.status()
    }

    fn end_within(&mut self, limit: Duration) {
        self.order_end(limit);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end_within(Duration::ZERO);
        }
    }
}

async fn send(
    sender: Sender,
    mut sources: Vec<Box<dyn RequestSource>>,
    workers: Vec<Worker>,
    on_diagnostic: OnDiagnostic,
    mut ordered: watch::Receiver<Option<Instant>>,
    drain: watch::Sender<Option<Instant>>,
) {
    let tasks: Vec<_> = workers.into_iter().map(|worker| tokio::spawn(worker.run())).collect();
    while ordered.borrow().is_none() {
        tokio::select! {
            () = tokio::time::sleep(ASKED_EVERY) => {}
            () = sender.wake.notified() => {}
            changed = ordered.changed() => if changed.is_err() { break },
        }
        sources.iter_mut().for_each(|source| source.send(&sender));
        report_drops(&sender, &on_diagnostic);
        for ((queue, _), _) in sender.queues.iter().zip(&tasks).filter(|(_, task)| task.is_finished()) {
            // A worker that gave up has closed its queue. This closes that of a worker that failed, so that
            // nobody waits for it.
            queue.close("the sender ended early: this is a defect of gputrace");
        }
    }
    // The sources may have got their last data meanwhile.
    sources.iter_mut().for_each(|source| source.send(&sender));
    report_drops(&sender, &on_diagnostic);
    let ended = async {
        for task in &tasks {
            wait_for(task).await;
        }
    };
    tokio::select! {
        () = ended => {}
        () = time_is_up(&mut ordered, &drain) => {}
    }
    // A task still running is aborted; the request that it was sending stays counted as queued.
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Passes the deadline on to the workers, and waits for it. A later order may bring it forward.
async fn time_is_up(ordered: &mut watch::Receiver<Option<Instant>>, drain: &watch::Sender<Option<Instant>>) {
    loop {
        let end = (*ordered.borrow_and_update()).unwrap_or_else(Instant::now);
        let _ = drain.send(Some(end));
        match timeout_at(end, ordered.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return tokio::time::sleep_until(end).await,
            Err(_) => return,
        }
    }
}

async fn wait_for(task: &tokio::task::JoinHandle<()>) {
    while !task.is_finished() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn report_drops(sender: &Sender, on_diagnostic: &OnDiagnostic) {
    for (queue, _) in sender.queues.iter().filter(|(queue, _)| queue.has_unreported_drops()) {
        let (items, mib) = (queue.signal.items(), max_bytes(queue.signal) >> 20);
        on_diagnostic(&format!("OTLP: {items} are dropped: {mib} MiB of them wait already; the oldest go"));
    }
}
