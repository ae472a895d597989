//! The thread that sends, and how others hand it what to send.

use std::fmt;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use crate::otlp::client::Client;
use crate::otlp::config::Config;
use crate::otlp::lane::{Lane, OnFull, max_bytes};
use crate::otlp::queue::{EncodedRequest, REQUEST_MAX_BYTES};
use crate::otlp::status::Status;
use crate::otlp::worker::{News, Said, Worker};
use crate::otlp::{Protocol, Signal};

/// Whoever has requests now and then: asked on the sender's thread twice a second, when woken, and at the end.
pub trait Source: Send {
    fn send(&mut self, to: &Sender);
}

const ASKED_EVERY: Duration = Duration::from_millis(500);
/// JSON of a request is at most so many times as long as protobuf.
const JSON_FACTOR: usize = 4;

/// Hands requests over, from any thread; never waits, unless asked to.
#[derive(Clone)]
pub struct Sender {
    lanes: Arc<[(Arc<Lane>, Protocol)]>,
    wake: Arc<Notify>,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.status()).finish()
    }
}

impl Sender {
    fn lane(&self, signal: Signal) -> Option<&(Arc<Lane>, Protocol)> {
        self.lanes.iter().find(|(lane, _)| lane.signal == signal)
    }

    pub fn sends(&self, signal: Signal) -> bool {
        self.lane(signal).is_some()
    }

    /// How long a request's protobuf may be.
    pub fn request_max_bytes(&self, signal: Signal) -> usize {
        match self.lane(signal) {
            Some((_, Protocol::HttpJson)) => REQUEST_MAX_BYTES / JSON_FACTOR,
            _ => REQUEST_MAX_BYTES,
        }
    }

    /// Queues a request. Requests of a signal that is not sent are ignored.
    pub fn send(&self, signal: Signal, request: EncodedRequest, on_full: OnFull) {
        if let Some((lane, _)) = self.lane(signal) {
            lane.push(request, on_full);
        }
    }

    /// Has the sources asked soon.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    pub fn status(&self) -> Status {
        let mut status = Status::default();
        for (lane, _) in self.lanes.iter() {
            status.set(lane.signal, lane.status());
        }
        status
    }

    /// Why a signal is given up, if it is.
    pub fn given_up(&self) -> Option<String> {
        self.lanes.iter().find_map(|(lane, _)| lane.closed())
    }
}

/// The running thread; it ends with this value.
#[derive(Debug)]
pub struct Exporter {
    sender: Sender,
    end: watch::Sender<Option<Instant>>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Reads certificates and starts to send. `patience`: how long to go on while nothing is taken; `None`: for ever.
    pub fn start(
        config: Config,
        sources: Vec<Box<dyn Source>>,
        news: News,
        patience: Option<Duration>,
    ) -> Result<Exporter, String> {
        let mut lanes = Vec::new();
        let mut clients = Vec::new();
        for target in config.targets {
            lanes.push((Arc::new(Lane::new(&target)), target.protocol));
            clients.push(Client::new(target)?);
        }
        let sender = Sender { lanes: lanes.into(), wake: Arc::new(Notify::new()) };
        let (end, ordered) = watch::channel(None);
        let (drain, drains) = watch::channel(None);
        let workers: Vec<_> = sender
            .lanes
            .iter()
            .zip(clients)
            .map(|((lane, _), client)| Worker {
                lane: Arc::clone(lane),
                client,
                news: Arc::clone(&news),
                end: drains.clone(),
                patience,
                said: Said::default(),
            })
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            // For looking up names, which may hang.
            .max_blocking_threads(2)
            .build()
            .map_err(|error| format!("the sender cannot start: {error}"))?;
        let asked = sender.clone();
        let send = move || {
            runtime.block_on(send(asked.clone(), sources, workers, news, ordered, drain));
            runtime.shutdown_background();
            for (lane, _) in asked.lanes.iter() {
                lane.close("the sender has ended");
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

    /// From now on it sends what is left, until all of it is taken or the time is up. A later order may bring the end
    /// forward.
    pub fn order_end(&self, limit: Duration) {
        // A year is as good as for ever.
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

    /// Whether there is nothing more to wait for.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end, ordered now if it is not yet.
    pub fn finish(mut self, limit: Duration) -> Status {
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
    mut sources: Vec<Box<dyn Source>>,
    workers: Vec<Worker>,
    news: News,
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
        tell_drops(&sender, &news);
        for ((lane, _), _) in sender.lanes.iter().zip(&tasks).filter(|(_, task)| task.is_finished()) {
            // One that gave up has said why; whoever waits for room must not wait for one that is gone.
            lane.close("the sender ended early: this is a defect of gputrace");
        }
    }
    // Once more: what came last may have come since.
    sources.iter_mut().for_each(|source| source.send(&sender));
    tell_drops(&sender, &news);
    let ended = async {
        for task in &tasks {
            wait_for(task).await;
        }
    };
    tokio::select! {
        () = ended => {}
        () = time_is_up(&mut ordered, &drain) => {}
    }
    // A task that has not ended by then ends here; what it was sending stays counted as queued.
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Tells the workers how long they have, which an order may shorten.
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

fn tell_drops(sender: &Sender, news: &News) {
    for (lane, _) in sender.lanes.iter().filter(|(lane, _)| lane.has_news_of_drops()) {
        let (items, mib) = (lane.signal.items(), max_bytes(lane.signal) >> 20);
        news(&format!("OTLP: {items} are dropped: {mib} MiB of them wait already; the oldest go"));
    }
}
