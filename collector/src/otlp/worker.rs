//! Sends one signal's queue, one request after the other, each until it is taken or refused for good.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::otlp::backoff::Backoff;
use crate::otlp::client::Client;
use crate::otlp::outcome::{ExportOutcome, RetryCause};
use crate::otlp::queue::EncodedRequest;
use crate::otlp::signal_queue::{SignalQueue, max_bytes};

/// How often a request is tried that the back end gives up itself: one that it cannot take would hold up all others.
const ABORTED_MAX: u32 = 5;
/// Attempts at a back end that is not what it should be, where somebody waits for it.
const WRONG_MAX: u32 = 3;
/// Between attempts once the end has come.
const LAST_WAIT: Duration = Duration::from_millis(500);
/// A back end that asks for more patience is asked again all the same.
const AFTER_MAX: Duration = Duration::from_secs(600);

/// Takes one-line diagnostics for the user, on the sender's thread; each is given once.
pub type OnDiagnostic = Arc<dyn Fn(&str) + Send + Sync>;

pub struct Worker {
    pub signal_queue: Arc<SignalQueue>,
    pub client: Client,
    pub on_diagnostic: OnDiagnostic,
    /// Set once nothing more is queued: then all is to be sent until that moment.
    pub end: watch::Receiver<Option<Instant>>,
    /// How long to go on without anything taken; `None`: as long as the program does.
    pub patience: Option<Duration>,
    pub reported: Reported,
}

/// What has been reported; each is reported once.
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
        let mut moved = Instant::now();
        while let Some(request) = self.next().await {
            // What was idle has not been waiting for the back end.
            if backoff.is_fresh() {
                moved = Instant::now();
            }
            if !self.deliver(request, &mut backoff, &mut moved).await {
                return;
            }
        }
    }

    /// `None` at the end, when all is done.
    async fn next(&mut self) -> Option<EncodedRequest> {
        loop {
            // Looked at first: what is queued before the end is reported is there by then.
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

    /// Whether to go on with the next.
    async fn deliver(&mut self, request: EncodedRequest, backoff: &mut Backoff, moved: &mut Instant) -> bool {
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
                ExportOutcome::Accepted { rejected, message } => {
                    backoff.reset();
                    *moved = Instant::now();
                    self.accept(rejected, &message);
                    return true;
                }
                ExportOutcome::Rejected { why } => {
                    backoff.reset();
                    *moved = Instant::now();
                    self.reject(&why);
                    return true;
                }
                ExportOutcome::RetryLater { why, after, cause } => (why, after, cause),
            };
            aborted += u32::from(cause == RetryCause::Aborted);
            wrong += u32::from(cause == RetryCause::WrongService);
            if aborted >= ABORTED_MAX {
                self.reject(&why);
                return true;
            }
            self.fails(&why);
            let is_over =
                self.patience.is_some_and(|patience| moved.elapsed() > patience || wrong >= WRONG_MAX);
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

    /// Until the next attempt; whether there is to be one.
    async fn wait(&mut self, after: Option<Duration>, backoff: &mut Backoff) -> bool {
        let asked = after.map(|after| after.min(AFTER_MAX));
        let mut wait = asked.unwrap_or_default().max(backoff.next());
        let until = Instant::now() + wait;
        if self.end.borrow_and_update().is_none() {
            tokio::select! {
                () = sleep(wait) => return true,
                changed = self.end.changed() => if changed.is_err() { return false },
            }
            // The end has come meanwhile: what the back end asked for stands, our own patience does not.
            wait = match asked {
                Some(_) => until.saturating_duration_since(Instant::now()),
                None => return true,
            };
        } else if asked.is_none() {
            wait = wait.min(LAST_WAIT);
        }
        let end = *self.end.borrow();
        if end.is_some_and(|end| Instant::now() + wait >= end) {
            // Nothing can come of waiting.
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
            let reported = if message.is_empty() { String::new() } else { format!(": {message}") };
            let told = match rejected {
                0 => format!("OTLP: {endpoint} takes {items} with a warning{reported}"),
                _ => format!("OTLP: {endpoint} rejects {items}, of this request {rejected}{reported}"),
            };
            (self.on_diagnostic)(&told);
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
