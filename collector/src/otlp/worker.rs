//! Sends one signal's queue, one request after another, each until the back end accepts or rejects it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::otlp::backoff::Backoff;
use crate::otlp::client::Client;
use crate::otlp::delivery::{Delivery, RetryCause};
use crate::otlp::queue::EncodedRequest;
use crate::otlp::signal_queue::{SignalQueue, max_bytes};

/// Attempts at a request that the back end aborts, so that one request cannot block the others for ever.
const ABORTED_MAX: u32 = 5;
/// Attempts at a wrong service, if somebody waits for the queue.
const WRONG_MAX: u32 = 3;
/// The longest wait between attempts once the end was ordered.
const LAST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait that a back end can ask for.
const AFTER_MAX: Duration = Duration::from_secs(600);

/// Takes one-line diagnostics for the user, on the sender's thread; each is given once.
pub type OnDiagnostic = Arc<dyn Fn(&str) + Send + Sync>;

pub struct Worker {
    pub signal_queue: Arc<SignalQueue>,
    pub client: Client,
    pub on_diagnostic: OnDiagnostic,
    /// The deadline, set once no more requests are queued.
    pub end: watch::Receiver<Option<Instant>>,
    /// How long to go on while nothing is accepted; `None`: until the end.
    pub patience: Option<Duration>,
    pub reported: Reported,
}

/// Which diagnostics were given; each is given once.
#[derive(Debug, Default)]
pub struct Reported {
    later: bool,
    again: bool,
    refused: bool,
    rejected: bool,
}

impl Worker {
    pub async fn run(mut self) {
        let mut backoff = Backoff::new();
        let mut last_progress = Instant::now();
        while let Some(request) = self.next().await {
            // Idle time does not count against the patience.
            if backoff.is_fresh() {
                last_progress = Instant::now();
            }
            if !self.deliver(request, &mut backoff, &mut last_progress).await {
                return;
            }
        }
    }

    /// The next request; `None` at the end, when the queue is empty.
    async fn next(&mut self) -> Option<EncodedRequest> {
        loop {
            // Read before the queue is: requests queued before the end was ordered must be found.
            let is_end = self.end.borrow().is_some();
            let request = self.signal_queue.take();
            if request.is_some() || is_end {
                return request;
            }
            tokio::select! {
                () = self.signal_queue.arrived.notified() => {}
                changed = self.end.changed() => if changed.is_err() { return None },
            }
        }
    }

    /// Sends a request until it has an outcome. Returns whether to go on with the next.
    async fn deliver(
        &mut self,
        request: EncodedRequest,
        backoff: &mut Backoff,
        last_progress: &mut Instant,
    ) -> bool {
        let body = match self.client.prepare(request.body) {
            Ok(body) => body,
            Err(why) => {
                self.reject(&why);
                return true;
            }
        };
        let mut aborted = 0;
        let mut wrong = 0;
        loop {
            let (why, after, cause) = match self.client.send(body.clone()).await {
                Delivery::Accepted { rejected, message } => {
                    backoff.reset();
                    *last_progress = Instant::now();
                    self.accept(rejected, &message);
                    return true;
                }
                Delivery::Rejected { why } => {
                    backoff.reset();
                    *last_progress = Instant::now();
                    self.reject(&why);
                    return true;
                }
                Delivery::RetryLater { why, after, cause } => (why, after, cause),
            };
            aborted += u32::from(cause == RetryCause::Aborted);
            wrong += u32::from(cause == RetryCause::WrongService);
            if aborted >= ABORTED_MAX {
                self.reject(&why);
                return true;
            }
            self.fails(&why);
            let is_over = self
                .patience
                .is_some_and(|patience| last_progress.elapsed() > patience || wrong >= WRONG_MAX);
            if is_over {
                self.signal_queue.close(&why);
                return false;
            }
            if !self.wait(after, backoff).await {
                return false;
            }
            self.signal_queue.retries();
        }
    }

    /// Waits for the next attempt. Returns false if the deadline comes first.
    async fn wait(&mut self, after: Option<Duration>, backoff: &mut Backoff) -> bool {
        let asked = after.map(|after| after.min(AFTER_MAX));
        let mut wait = asked.unwrap_or_default().max(backoff.next());
        let until = Instant::now() + wait;
        if self.end.borrow_and_update().is_none() {
            tokio::select! {
                () = sleep(wait) => return true,
                changed = self.end.changed() => if changed.is_err() { return false },
            }
            // The end was ordered meanwhile. A wait that the back end asked for goes on, our own does not.
            wait = match asked {
                Some(_) => until.saturating_duration_since(Instant::now()),
                None => return true,
            };
        } else if asked.is_none() {
            wait = wait.min(LAST_WAIT);
        }
        let end = *self.end.borrow();
        if end.is_some_and(|end| Instant::now() + wait >= end) {
            // The deadline comes first.
            return false;
        }
        sleep(wait).await;
        true
    }

    fn accept(&mut self, rejected: u64, message: &str) {
        self.signal_queue.accepted(rejected);
        let (items, endpoint) = (self.signal_queue.signal.items(), self.endpoint());
        if self.reported.later && !std::mem::replace(&mut self.reported.again, true) {
            (self.on_diagnostic)(&format!("OTLP: {endpoint} takes {items} again"));
        }
        if (rejected > 0 || !message.is_empty()) && !std::mem::replace(&mut self.reported.rejected, true) {
            let detail = if message.is_empty() { String::new() } else { format!(": {message}") };
            let text = match rejected {
                0 => format!("OTLP: {endpoint} takes {items} with a warning{detail}"),
                _ => format!("OTLP: {endpoint} rejects {items}, of this request {rejected}{detail}"),
            };
            (self.on_diagnostic)(&text);
        }
        if rejected > 0 {
            self.signal_queue.fails(&format!("rejected in part: {message}"));
        }
    }

    fn reject(&mut self, why: &str) {
        self.signal_queue.rejected();
        self.signal_queue.fails(why);
        if !std::mem::replace(&mut self.reported.refused, true) {
            let (items, endpoint) = (self.signal_queue.signal.items(), self.endpoint());
            (self.on_diagnostic)(&format!("OTLP: {endpoint} refuses {items}: {why}"));
        }
    }

    fn fails(&mut self, why: &str) {
        self.signal_queue.fails(why);
        if !std::mem::replace(&mut self.reported.later, true) {
            let (items, endpoint) = (self.signal_queue.signal.items(), self.endpoint());
            let mib = max_bytes(self.signal_queue.signal) >> 20;
            (self.on_diagnostic)(&format!(
                "OTLP: {endpoint} takes no {items}: {why}\n  they wait, {mib} MiB at most, and are sent again"
            ));
        }
    }

    fn endpoint(&self) -> String {
        let target = self.client.target();
        target.endpoint.shown(target.protocol)
    }
}
