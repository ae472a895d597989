//! The drain thread: accepts processes, empties their rings, notices their ends.
//!
//! The only thread that uses shared memory and the sockets. It polls the rings every few milliseconds while
//! there are entries, more rarely while there are few or none, and at once after any event on a socket. Each
//! poll wakes a processor, which may be the other half of one on which the program works.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gputrace_wire::atomic::{AtomicU32, Ordering};
use gputrace_wire::control::Control;
use gputrace_wire::handshake::{self, Head};
use gputrace_wire::segment::kind as segment_kind;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::batch::{Batch, ProcessEnd};
use crate::session::death::Death;
use crate::session::live_order::ReportedState;
use crate::session::names::Names;
use crate::session::peer::{self, Credentials, PacketBuffer, Received};
use crate::session::ready::Ready;
use crate::session::segment::{Refusal, Segment};
use crate::session::shared::{Orders, Shared};
use crate::session::step::Step;
use crate::session::step_sender::StepSender;
use crate::session::tracked::{Tracked, Turn};
use crate::stream::clock::monotonic_ns;
use crate::stream::coalesce::Coalescer;

/// Between polls of the rings while they have many entries. A thread's ring of 65 536 cells lasts 160 ms at
/// 400 000 launches a second.
const BUSY: Duration = Duration::from_millis(2);
/// The longest time between polls while there are entries: what 100 000 launches a second write in it is a
/// 64th of the ring.
const STEADY: Duration = Duration::from_millis(10);
/// The longest time between polls.
const IDLE: Duration = Duration::from_millis(20);
/// The longest time for which cells are gathered before they are sent. A flight recorder gathers for at most
/// a tenth of the time that it keeps.
const GATHER: Duration = Duration::from_secs(1);
const GATHERS: u32 = 10;
const GATHER_MIN: Duration = Duration::from_millis(50);
/// How long a peer may take to send its hello.
const HELLO: Duration = Duration::from_secs(5);
/// The same while many peers have not sent theirs: the library sends it at once.
const HELLO_OF_MANY: Duration = Duration::from_millis(250);
/// The most peers that have not sent hello (others wait in the socket's queue), and the most processes that
/// are recorded at a time.
const PENDING_MAX: usize = 256;
const TRACKED_MAX: usize = 4096;
/// The most messages of one process that are received in a turn: a process that sends without end must not
/// keep the rings from being drained.
const HEARD_A_TURN: usize = 64;
/// The same once the process has ended: more than a socket's queue holds.
const HEARD_AT_THE_END: usize = 4096;
/// How long past the deadline messages are still received.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The most polls of the sockets at the very end: a few empty the listener's queue, and peers that keep
/// coming must not delay the end.
const LAST_TURNS: u32 = 64;
/// How long no peer is accepted after `accept` failed, for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a process that still runs at the session's end has to publish what it holds back.
const FLUSH: Duration = Duration::from_millis(300);
/// How long the end waits until all that was read is stored, if another collector may take over.
const STORE: Duration = Duration::from_secs(5);

/// A peer that has not sent hello.
struct Pending {
    socket: OwnedFd,
    who: Credentials,
    since: Instant,
}

/// How processes connect, and how their entries are kept.
#[derive(Default)]
pub struct DrainConfig {
    /// The socket at which any number of processes join.
    pub listener: Option<OwnedFd>,
    /// The socket to a single process, whose good-bye ends the session.
    pub connected: Option<OwnedFd>,
    /// Whether another collector may take over from this one. If so, slots are released only once their
    /// entries are stored.
    pub can_be_taken_over: bool,
    /// How much a flight recorder keeps, if there is one.
    pub window: Option<Duration>,
}

pub struct Drain {
    listener: Option<OwnedFd>,
    /// Whether there is a single process, connected from the start, whose good-bye ends the session.
    single: bool,
    shared: Arc<Shared>,
    out: StepSender,
    /// Whether another collector may take over from this one.
    can_be_taken_over: bool,
    pending: Vec<Pending>,
    tracked: Vec<Tracked>,
    next_number: u32,
    gather: Coalescer,
    gather_for: Duration,
    /// `None` if the thread that looks could not be started.
    names: Option<Names>,
    buffer: PacketBuffer,
    flushed_at: Instant,
    /// Until when the listener is not polled.
    accept_again: Option<Instant>,
    /// The connection of the single process, kept for the reply.
    reply: Option<OwnedFd>,
}

/// The time until the next poll, from the last one and what was found after it.
fn next_pause(pause: Duration, turn: Turn) -> Duration {
    match turn {
        Turn::More => Duration::ZERO,
        Turn::Much => BUSY,
        Turn::Some => (pause * 2).clamp(BUSY, STEADY),
        Turn::Nothing => (pause * 2).clamp(BUSY, IDLE),
    }
}

impl Drain {
    pub fn new(config: DrainConfig, shared: Arc<Shared>, out: StepSender) -> Drain {
        let DrainConfig { listener, connected, can_be_taken_over, window } = config;
        let single = connected.is_some();
        let mut drain = Drain {
            listener,
            single,
            shared,
            out,
            can_be_taken_over,
            pending: Vec::new(),
            tracked: Vec::new(),
            next_number: 0,
            gather: Coalescer::default(),
            gather_for: window.map_or(GATHER, |window| (window / GATHERS).clamp(GATHER_MIN, GATHER)),
            names: Names::start(),
            buffer: PacketBuffer::new(),
            flushed_at: Instant::now(),
            accept_again: None,
            reply: None,
        };
        if let Some(socket) = connected {
            drain.take_peer(socket);
        }
        drain
    }

    /// Runs until the order to finish, and until nothing is left. Returns the connection for the reply.
    pub fn run(mut self) -> Option<OwnedFd> {
        let mut pause = BUSY;
        let mut flush_asked: Option<Instant> = None;
        loop {
            let ready = self.wait(pause);
            let heard = self.hear(&ready);
            let turn = self.drain();
            self.pass_on_orders();
            self.pass_on_texts();
            self.write_names(false);
            self.end_those_that_are_over();
            let all_left = self.single || self.next_number > 0;
            if all_left && self.pending.is_empty() && self.tracked.is_empty() {
                self.shared.set_ended();
            }
            if self.flushed_at.elapsed() >= self.gather_for {
                self.flush();
            }
            for request in self.shared.take_dumps() {
                // The dump includes all that was read so far.
                self.flush();
                self.out.step(Step::Dump(request));
            }
            let looks = self.shared.take_looks();
            if !looks.is_empty() {
                self.flush();
                self.note_states();
                self.out.step(Step::Look(looks));
            }
            pause = next_pause(pause, turn);

            let Orders { finish, deadline } = self.shared.orders();
            // A message may be followed by others: a process may join just before it exits.
            if !finish || (heard && Instant::now() < deadline + LAST_WORDS) {
                continue;
            }
            if self.is_quiet() || Instant::now() >= deadline {
                match flush_asked {
                    None if self.tracked.iter().any(runs_on) => {
                        self.ask_for_flush();
                        flush_asked = Some(Instant::now());
                    }
                    Some(since) if !self.all_flushed() && since.elapsed() < FLUSH => pause = BUSY,
                    _ => break,
                }
            }
        }
        self.finish();
        self.shared.close_requests();
        self.reply
    }

    /// Sleeps until an event on a socket, or until the time is up.
    fn wait(&self, pause: Duration) -> Ready {
        let paused = self.accept_again.is_some_and(|again| Instant::now() < again);
        let listener = self.listener.as_ref().filter(|_| !paused && self.pending.len() < PENDING_MAX);
        let pending: Vec<_> = self.pending.iter().map(|peer| &peer.socket).collect();
        let tracked: Vec<_> = self.tracked.iter().map(Tracked::sockets).collect();
        let ready = Ready::wait(&self.shared.wake, listener, &pending, &tracked, pause);
        self.shared.clear_wake();
        ready
    }

    /// Receives from the sockets. Returns whether anything came.
    fn hear(&mut self, ready: &Ready) -> bool {
        let mut heard = false;
        // Processes come before new peers, so that the good-bye of a process that executes another program is
        // received before the hello of that program.
        for (index, ready_now) in ready.tracked.iter().enumerate() {
            if let (true, Some(process)) = (*ready_now, self.tracked.get_mut(index)) {
                heard |=
                    hear_process(process, HEARD_A_TURN, &mut self.buffer, &self.shared, &mut self.gather);
            }
        }
        for (process, dead) in self.tracked.iter_mut().zip(&ready.dead) {
            process.dead |= *dead;
            heard |= *dead;
        }
        let patience = if self.pending.len() < PENDING_MAX / 2 { HELLO } else { HELLO_OF_MANY };
        let flags = ready.pending.iter().copied().chain(std::iter::repeat(false));
        for (peer, ready_now) in std::mem::take(&mut self.pending).into_iter().zip(flags) {
            match ready_now {
                true => {
                    heard = true;
                    self.hear_pending(peer);
                }
                false if peer.since.elapsed() < patience || self.single => self.pending.push(peer),
                false => self.shared.refuse(peer.who.pid, "it did not say hello in time"),
            }
        }
        if ready.listener {
            heard |= self.accept();
        }
        heard
    }

    fn accept(&mut self) -> bool {
        let mut any = false;
        // Peers beyond PENDING_MAX stay in the kernel's queue, with their hello.
        while let Some(listener) = self.listener.as_ref().filter(|_| self.pending.len() < PENDING_MAX) {
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.take_peer(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    // The peer stays in the queue, so the listener stays ready; without a pause this thread
                    // would spin.
                    self.accept_again = Some(Instant::now() + ACCEPT_PAUSE);
                    break;
                }
            }
            any = true;
        }
        any
    }

    fn take_peer(&mut self, socket: OwnedFd) {
        let Ok(who) = peer::credentials(&socket) else { return };
        if !peer::is_welcome(who) {
            return self.refuse(&socket, who, "this session records another user's processes");
        }
        self.pending.push(Pending { socket, who, since: Instant::now() });
    }

    fn refuse(&self, socket: &OwnedFd, who: Credentials, why: &str) {
        self.shared.refuse(who.pid, why);
        peer::send_message(socket, Head::new(handshake::kind::REFUSED, who.pid, 0, 0), why);
    }

    fn hear_pending(&mut self, peer: Pending) {
        match peer::receive(&peer.socket, &mut self.buffer) {
            Received::Nothing => self.pending.push(peer),
            Received::HungUp => {}
            Received::Garbage => self.refuse(&peer.socket, peer.who, "it sent something that is no message"),
            Received::Message { head, fd } => {
                if let Err(why) = self.hello(peer.who, head, fd, &peer.socket) {
                    self.refuse(&peer.socket, peer.who, &why);
                    return;
                }
                let Some(process) = self.tracked.last_mut() else { return };
                let value = if self.can_be_taken_over { handshake::welcome::TAKEOVER } else { 0 };
                let welcome = Head::new(handshake::kind::WELCOME, process.pid, process.generation, value);
                peer::send_message(&peer.socket, welcome, "");
                process.connection = Some(peer.socket);
            }
        }
    }

    /// A process joins, or joins again. It becomes the last one in `tracked`.
    fn hello(
        &mut self,
        who: Credentials,
        head: Head,
        fd: Option<OwnedFd>,
        socket: &OwnedFd,
    ) -> Result<(), String> {
        if gputrace_wire::major_of(head.version) != gputrace_wire::VERSION_MAJOR {
            return Err(Refusal::Version(head.version).to_string());
        }
        let (handshake::kind::HELLO, Some(fd)) = (head.kind, fd) else {
            return Err("its first message is not a hello with a memory file".into());
        };
        let segment = Segment::open(&fd).map_err(|refusal| refusal.to_string())?;
        if segment.kind() != segment_kind::PRIMARY {
            return Err("its first segment is not a primary one".into());
        }
        let same_pid = |process: &Tracked| who.pid != 0 && process.pid == who.pid;
        if let Some(index) = self.tracked.iter().position(same_pid) {
            let mut process = self.tracked.remove(index);
            if process.primary().identity() == segment.identity() {
                self.tracked.push(process);
                return Ok(());
            }
            process.replaced = true;
            self.finish_process(process);
        }
        if self.tracked.len() >= TRACKED_MAX {
            return Err("this session records as many processes as it can".into());
        }
        let mut process =
            Tracked::new(self.next_number, who.pid, head.generation, segment, self.can_be_taken_over);
        self.next_number += 1;
        process.watch = peer::watch(who);
        if self.single {
            self.reply = socket.try_clone().ok();
        }
        process.introduce(&mut self.gather, &self.out);
        if let Some(names) = &mut self.names {
            names.begin(process.number, process.pid, process.own_pid());
        }
        self.tracked.push(process);
        self.shared.note_joined();
        Ok(())
    }

    /// Drains every ring once.
    fn drain(&mut self) -> Turn {
        let now_ns = monotonic_ns();
        let mut turn = Turn::Nothing;
        // SYNC: pairs with the processing thread's Release: the batches that it counts are in the file.
        let stored = self.shared.stored.load(Ordering::Acquire);
        for process in &mut self.tracked {
            let control = process.primary().control();
            control.heartbeat_ns.store(now_ns, Ordering::Relaxed);
            if control.capture_over.load(Ordering::Relaxed) == 1 {
                self.shared.capture_is_over.store(1, Ordering::Relaxed);
            }
            process.give_back(stored);
            turn = turn.max(process.drain(false, &mut self.gather, &self.out));
            let named = process.take_named();
            if let Some(names) = &mut self.names {
                names.defined(process.number, &named);
            }
        }
        turn
    }

    /// Writes changed names of threads and processes. A process that says good-bye, or still runs at the
    /// session's end, is looked at once more, unless another program has replaced it.
    fn write_names(&mut self, at_the_end: bool) {
        let Some(names) = &mut self.names else { return };
        let leaves = |process: &&mut Tracked| !process.looked_last && (at_the_end || process.bye);
        let mut leaving = Vec::new();
        for process in self.tracked.iter_mut().filter(leaves) {
            process.looked_last = true;
            leaving.push(process.number);
        }
        let tracked = &self.tracked;
        let of = |number| tracked.iter().find(|process| process.number == number);
        let is_alive = |number| of(number).is_some_and(Tracked::is_alive);
        let mut seen = names.take(is_alive);
        for number in leaving {
            seen.extend(names.last(number, is_alive));
        }
        for (process, records) in seen {
            if !records.is_empty() && of(process).is_some() {
                self.out.batch(Batch::Definitions { process, records });
            }
        }
    }

    fn end_those_that_are_over(&mut self) {
        let single = self.single;
        let is_over = |process: &mut Tracked| process.is_over() || (single && process.bye);
        let over: Vec<_> = self.tracked.extract_if(.., is_over).collect();
        for mut process in over {
            // Its last messages may have come after this turn's poll of its socket.
            hear_process(&mut process, HEARD_AT_THE_END, &mut self.buffer, &self.shared, &mut self.gather);
            self.finish_process(process);
        }
    }

    fn finish_process(&mut self, mut process: Tracked) {
        if let Some(names) = &mut self.names {
            names.end(process.number);
        }
        self.write_death(&process);
        process.finish(monotonic_ns(), &mut self.gather, &self.out);
    }

    /// Sends how a process died, before its end.
    fn write_death(&self, process: &Tracked) {
        if process.pid != 0 && process.end() == ProcessEnd::Vanished {
            let death = Death::of_zombie(process.pid).or_else(|| self.shared.death_of(process.pid));
            if let Some(death) = death {
                self.out.step(Step::Death { process: process.number, death });
            }
        }
    }

    /// Sends what was gathered, and every process's counters.
    fn flush(&mut self) {
        self.flushed_at = Instant::now();
        let out = &self.out;
        self.gather.flush_all(&mut |batch| out.batch(batch));
        for process in &mut self.tracked {
            process.note_sent(out);
            out.batch(Batch::Counters(process.counters()));
        }
    }

    /// Whether every connected process has said good-bye.
    fn is_quiet(&self) -> bool {
        self.pending.is_empty() && !self.tracked.iter().any(runs_on)
    }

    /// Passes orders to pause or to record, and settings, on to all processes.
    fn pass_on_orders(&self) {
        let order = self.shared.recording();
        if !order.is_settled(self.tracked.len()) {
            let passed =
                self.pass_on(order.wanted, |control| (&control.recording_wanted, &control.recording_done));
            self.note_states();
            self.shared.note_recording(order.wanted, passed);
        }
        let order = self.shared.settings();
        if !order.is_settled(self.tracked.len()) {
            let passed =
                self.pass_on(order.wanted, |control| (&control.settings_wanted, &control.settings_done));
            self.note_states();
            self.shared.note_settings(order.wanted, passed);
        }
    }

    /// Gives texts for the user to the single process. What it does not take is kept for the session's end.
    fn pass_on_texts(&self) {
        let process = self.tracked.iter().find(|process| self.single && runs_on(process));
        let Some(connection) = process.and_then(|process| process.connection.as_ref()) else { return };
        for text in self.shared.take_texts() {
            let head = Head::new(handshake::kind::SAY, 0, 0, 0);
            if !peer::send_message(connection, head, &text) {
                self.shared.keep_text(text);
            }
        }
    }

    /// How many processes have an order in effect, and which do not.
    fn pass_on(
        &self,
        wanted: u32,
        words: impl Fn(&Control) -> (&AtomicU32, &AtomicU32),
    ) -> (usize, Vec<u32>) {
        let (mut done, mut waiting) = (0, Vec::new());
        for process in self.tracked.iter().filter(|process| runs_on(process)) {
            let (to, answer) = words(process.primary().control());
            // SYNC: pairs with the service thread's Acquire load. That thread looks about every 50 ms.
            to.store(wanted, Ordering::Release);
            match answer.load(Ordering::Acquire) == wanted {
                true => done += 1,
                false => waiting.push(process.pid),
            }
        }
        (done, waiting)
    }

    /// Keeps what the running processes report, for those who ask.
    fn note_states(&self) {
        let running = self.tracked.iter().filter(|process| runs_on(process));
        let states = running.map(|process| ReportedState::read(process.pid, process.primary().control()));
        self.shared.note_states(states);
    }

    fn ask_for_flush(&self) {
        for process in self.tracked.iter().filter(|process| runs_on(process)) {
            // The process's service thread checks this about every 50 ms.
            process.primary().control().flush.fetch_add(1, Ordering::Release);
        }
    }

    fn all_flushed(&self) -> bool {
        self.tracked.iter().filter(|process| runs_on(process)).all(|process| {
            let control = process.primary().control();
            control.flushed.load(Ordering::Acquire) == control.flush.load(Ordering::Relaxed)
        })
    }

    fn finish(&mut self) {
        // Processes that joined or died since the last poll are recorded too: a hello in a socket's queue is
        // from a process that has published entries. The loop is bounded by turns and not by time, since
        // reading those entries may take any time.
        for _ in 0..LAST_TURNS {
            let ready = self.wait(Duration::ZERO);
            if !self.hear(&ready) {
                break;
            }
            self.end_those_that_are_over();
        }
        self.drain();
        self.write_names(true);
        let mut left = std::mem::take(&mut self.tracked);
        for process in &mut left {
            self.write_death(process);
            process.finish(monotonic_ns(), &mut self.gather, &self.out);
        }
        let out = &self.out;
        self.gather.flush_all(&mut |batch| out.batch(batch));
        if !self.can_be_taken_over {
            return;
        }
        // The next collector continues where this file ends.
        let deadline = Instant::now() + STORE;
        while self.shared.stored.load(Ordering::Acquire) < out.sent() && Instant::now() < deadline {
            std::thread::sleep(BUSY);
        }
        let stored = self.shared.stored.load(Ordering::Acquire);
        left.iter_mut().for_each(|process| process.give_back(stored));
    }
}

/// Whether the process is connected and has not said good-bye.
fn runs_on(process: &Tracked) -> bool {
    process.connection.is_some() && !process.bye
}

/// Receives at most `most` messages of a process. Returns whether anything came.
fn hear_process(
    process: &mut Tracked,
    most: usize,
    buffer: &mut PacketBuffer,
    shared: &Shared,
    gather: &mut Coalescer,
) -> bool {
    let mut heard = false;
    for _ in 0..most {
        let Some(connection) = &process.connection else { break };
        let received = peer::receive(connection, buffer);
        heard |= !matches!(received, Received::Nothing);
        match received {
            Received::Nothing => break,
            Received::Message { head, fd } => match (head.kind, fd) {
                (handshake::kind::SEGMENT, Some(fd)) => process.take_segment(&fd, gather),
                (handshake::kind::BYE, None) => process.take_bye(head.value),
                // From a newer library, or invalid. Ignored.
                _ => {}
            },
            Received::HungUp => process.connection = None,
            Received::Garbage => {
                shared.refuse(process.pid, "it sent something that is no message");
                process.connection = None;
            }
        }
    }
    heard
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_polled_the_more_often_the_more_they_have() {
        let pauses = |turn| {
            let mut pause = BUSY;
            (0..6).for_each(|_| pause = next_pause(pause, turn));
            pause
        };
        assert_eq!(pauses(Turn::Nothing), IDLE);
        assert_eq!(pauses(Turn::Some), STEADY);
        assert_eq!(pauses(Turn::Much), BUSY);
        assert_eq!(pauses(Turn::More), Duration::ZERO);
        // At once, however long the pause was.
        assert_eq!(next_pause(IDLE, Turn::Some), STEADY);
        assert_eq!(next_pause(IDLE, Turn::Much), BUSY);
        assert_eq!(next_pause(Duration::ZERO, Turn::Some), BUSY);
    }
}
