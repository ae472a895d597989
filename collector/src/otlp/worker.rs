//! Sends one signal's queue, one request after the other, each until it is taken or refused for good.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::otlp::answer::{Answer, Kind};
use crate::otlp::backoff::Backoff;
use crate::otlp::client::Client;
use crate::otlp::lane::{Lane, max_bytes};
use crate::otlp::queue::EncodedRequest;

/// How often a request is tried that the back end gives up itself: one that it cannot take would hold up all others.
const ABORTED_MAX: u32 = 5;
/// Attempts at a back end that is not what it should be, where somebody waits for it.
const WRONG_MAX: u32 = 3;
/// Between attempts once the end has come.
const LAST_WAIT: Duration = Duration::from_millis(500);
/// A back end that asks for more patience is asked again all the same.
const AFTER_MAX: Duration = Duration::from_secs(600);

/// Takes one-line diagnostics for the user, on the sender's thread; each is given once.
pub type News = Arc<dyn Fn(&str) + Send + Sync>;

pub struct Worker {
    pub lane: Arc<Lane>,
    pub client: Client,
    pub news: News,
    /// Set once nothing more is queued: then all is to be sent until that moment.
    pub end: watch::Receiver<Option<Instant>>,
    /// How long to go on without anything taken; `None`: as long as the program does.
    pub patience: Option<Duration>,
    pub said: Said,
}

/// What has been said; each is said once.
#[derive(Debug, Default)]
pub struct Said {
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
            // Looked at first: what is queued before the end is said is there by then.
            let is_end = self.end.borrow().is_some();
            let request = self.lane.take();
            if request.is_some() || is_end {
                return request;
            }
            tokio::select! {
                () = self.lane.arrived.notified() => {}
                changed = self.end.changed() => if changed.is_err() { return None },
            }
        }
    }

    /// Whether to go on with the next.
    async fn deliver(&mut self, request: EncodedRequest, backoff: &mut Backoff, moved: &mut Instant) -> bool {
        let body = match self.client.prepare(request.body) {
            Ok(body) => body,
            Err(why) => {
                self.refuse(&why);
                return true;
            }
        };
        let mut aborted = 0;
        let mut wrong = 0;
        loop {
            let (why, after, kind) = match self.client.send(body.clone()).await {
                Answer::Taken { rejected, message } => {
                    backoff.reset();
                    *moved = Instant::now();
                    self.take(rejected, &message);
                    return true;
                }
                Answer::Refused { why } => {
                    backoff.reset();
                    *moved = Instant::now();
                    self.refuse(&why);
                    return true;
                }
                Answer::Later { why, after, kind } => (why, after, kind),
            };
            aborted += u32::from(kind == Kind::Aborted);
            wrong += u32::from(kind == Kind::Wrong);
            if aborted >= ABORTED_MAX {
                self.refuse(&why);
                return true;
            }
            self.fails(&why);
            let is_over =
                self.patience.is_some_and(|patience| moved.elapsed() > patience || wrong >= WRONG_MAX);
            if is_over {
                self.lane.close(&why);
                return false;
            }
            if !self.wait(after, backoff).await {
                return false;
            }
            self.lane.retries();
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

    fn take(&mut self, rejected: u64, message: &str) {
        self.lane.taken(rejected);
        let (items, endpoint) = (self.lane.signal.items(), self.endpoint());
        if self.said.later && !std::mem::replace(&mut self.said.again, true) {
            (self.news)(&format!("OTLP: {endpoint} takes {items} again"));
        }
        if (rejected > 0 || !message.is_empty()) && !std::mem::replace(&mut self.said.rejected, true) {
            let said = if message.is_empty() { String::new() } else { format!(": {message}") };
            let told = match rejected {
                0 => format!("OTLP: {endpoint} takes {items} with a warning{said}"),
                _ => format!("OTLP: {endpoint} rejects {items}, of this request {rejected}{said}"),
            };
            (self.news)(&told);
        }
        if rejected > 0 {
            self.lane.fails(&format!("rejected in part: {message}"));
        }
    }

    fn refuse(&mut self, why: &str) {
        self.lane.refused();
        self.lane.fails(why);
        if !std::mem::replace(&mut self.said.refused, true) {
            let (items, endpoint) = (self.lane.signal.items(), self.endpoint());
            (self.news)(&format!("OTLP: {endpoint} refuses {items}: {why}"));
        }
    }

    fn fails(&mut self, why: &str) {
        self.lane.fails(why);
        if !std::mem::replace(&mut self.said.later, true) {
            let (items, endpoint) = (self.lane.signal.items(), self.endpoint());
            let mib = max_bytes(self.lane.signal) >> 20;
            (self.news)(&format!(
                "OTLP: {endpoint} takes no {items}: {why}\n  they wait, {mib} MiB at most, and are sent again"
            ));
        }
    }

    fn endpoint(&self) -> String {
        let target = self.client.target();
        target.endpoint.shown(target.protocol)
    }
}
