//! The drain thread: accepts processes, empties their rings, notices their ends.
//!
//! The one thread that touches shared memory and the socket. It looks at the rings every few
//! milliseconds while there is something, more rarely while there is not, and at once when
//! anything happens on the socket.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gputrace_wire::atomic::Ordering;
use gputrace_wire::handshake::{self, Head};
use gputrace_wire::segment::kind as segment_kind;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::batch::{Batch, ProcessEnd};
use crate::session::death::Death;
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

/// Between looks at the rings while there is something in them. A thread's ring of 65 536 cells
/// lasts 160 ms at 400 000 launches a second.
const BUSY: Duration = Duration::from_millis(2);
/// The longest time between looks.
const IDLE: Duration = Duration::from_millis(20);
/// How long cells are gathered before they go out however few they are; a flight recorder, which
/// keeps or drops them as they come, gathers for a part of what it keeps at most.
const GATHER: Duration = Duration::from_secs(1);
const GATHERS: u32 = 10;
const GATHER_MIN: Duration = Duration::from_millis(50);
/// How long a peer may take to say hello.
const HELLO: Duration = Duration::from_secs(5);
/// The same while many peers are connected who have not: who means well says it at once.
const HELLO_OF_MANY: Duration = Duration::from_millis(250);
/// Peers that have not said hello, beyond whom the others wait in the socket's queue; and
/// processes that are recorded at a time.
const PENDING_MAX: usize = 256;
const TRACKED_MAX: usize = 4096;
/// Messages of one process that are taken in a turn: whoever sends on and on is heard again at the
/// next, and keeps nobody's rings from being emptied.
const HEARD_A_TURN: usize = 64;
/// The same when it is over: more than a socket's queue holds.
const HEARD_AT_THE_END: usize = 4096;
/// How long past the deadline the sockets are still listened to, if they have something to say.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Looks at the sockets at the very end, while there is something: the listener's queue empties in
/// a few, and peers that never stop coming do not hold the end up.
const LAST_TURNS: u32 = 64;
/// How long no new peer is accepted after one could not be: there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a process that runs on at the session's end has to publish what it holds back.
const FLUSH: Duration = Duration::from_millis(300);
/// How long the end waits for what was read to be stored, where another collector may take over.
const STORE: Duration = Duration::from_secs(5);

/// A peer that has not said hello.
struct Pending {
    socket: OwnedFd,
    who: Credentials,
    since: Instant,
}

/// Where processes come from, and what becomes of what they publish.
#[derive(Default)]
pub struct DrainConfig {
    /// Where any number of processes join.
    pub listener: Option<OwnedFd>,
    /// The socket to one process, whose good-bye is the end.
    pub connected: Option<OwnedFd>,
    /// Whether another collector may take over from this one: slots are given back once they are stored.
    pub can_be_taken_over: bool,
    /// How much a flight recorder keeps, if there is one.
    pub window: Option<Duration>,
}

pub struct Drain {
    listener: Option<OwnedFd>,
    /// Whether there is one process only, connected from the start, whose good-bye is the end.
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
    /// `None` where nobody looks.
    names: Option<Names>,
    buffer: PacketBuffer,
    flushed_at: Instant,
    /// Set while the listener is not looked at.
    accept_again: Option<Instant>,
    /// The connection of the single process, kept for the reply.
    reply: Option<OwnedFd>,
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

    /// Runs until it is told to finish and nothing is left. Returns the connection to reply on.
    pub fn run(mut self) -> Option<OwnedFd> {
        let mut pause = BUSY;
        let mut flush_asked: Option<Instant> = None;
        loop {
            let ready = self.wait(pause);
            let heard = self.hear(&ready);
            let turn = self.drain();
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
                // All that was read so far belongs to it.
                self.flush();
                self.out.step(Step::Dump(request));
            }
            let looks = self.shared.take_looks();
            if !looks.is_empty() {
                self.flush();
                self.out.step(Step::Look(looks));
            }
            pause = match turn {
                Turn::More => Duration::ZERO,
                Turn::Some => BUSY,
                Turn::Nothing => (pause * 2).clamp(BUSY, IDLE),
            };

            let Orders { finish, deadline } = self.shared.orders();
            // What was just heard may mean more to hear: a process that joined with its last breath.
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

    /// Sleeps until something happens on a socket or the time is up.
    fn wait(&self, pause: Duration) -> Ready {
        let paused = self.accept_again.is_some_and(|again| Instant::now() < again);
        let listener = self.listener.as_ref().filter(|_| !paused && self.pending.len() < PENDING_MAX);
        let pending: Vec<_> = self.pending.iter().map(|peer| &peer.socket).collect();
        let tracked: Vec<_> = self.tracked.iter().map(Tracked::sockets).collect();
        let ready = Ready::wait(&self.shared.wake, listener, &pending, &tracked, pause);
        self.shared.clear_wake();
        ready
    }

    /// Acts on the sockets. Returns whether anything came.
    fn hear(&mut self, ready: &Ready) -> bool {
        let mut heard = false;
        // The processes come before the new peers, so that a process that replaced itself has
        // said its good-bye before its new image says hello.
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
        // Those for whom there is no room yet stay in the kernel's queue, hello and all.
        while let Some(listener) = self.listener.as_ref().filter(|_| self.pending.len() < PENDING_MAX) {
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.take_peer(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    // The peer stays in the queue, so the listener stays ready; without a pause
                    // this thread would do nothing but ask.
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

    /// A process joins, or joins again: it is the last of the tracked ones then.
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
        Ok(())
    }

    /// Has a turn at every ring.
    fn drain(&mut self) -> Turn {
        let now_ns = monotonic_ns();
        let mut turn = Turn::Nothing;
        // SYNC: pairs with the digest thread's Release: what it counts is in the file.
        let stored = self.shared.stored.load(Ordering::Acquire);
        for process in &mut self.tracked {
            process.primary().control().heartbeat_ns.store(now_ns, Ordering::Relaxed);
            process.give_back(stored);
            turn = turn.max(process.drain(false, &mut self.gather, &self.out));
            let named = process.take_named();
            if let Some(names) = &mut self.names {
                names.defined(process.number, &named);
            }
        }
        turn
    }

    /// Says what threads and processes are called by now. Where a process says good-bye, or the session
    /// ends under it, it is looked at once more, unless another program has its place already.
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
            // Its last messages may have come after this turn's look at its socket.
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

    /// Says what a process died of, before its end is told.
    fn write_death(&self, process: &Tracked) {
        if process.pid != 0 && process.end() == ProcessEnd::Vanished {
            let death = Death::of_zombie(process.pid).or_else(|| self.shared.death_of(process.pid));
            if let Some(death) = death {
                self.out.step(Step::Death { process: process.number, death });
            }
        }
    }

    /// Lets out what was gathered, and every process's counters.
    fn flush(&mut self) {
        self.flushed_at = Instant::now();
        let out = &self.out;
        self.gather.flush_all(&mut |batch| out.batch(batch));
        for process in &mut self.tracked {
            process.note_sent(out);
            out.batch(Batch::Counters(process.counters()));
        }
    }

    /// Whether nobody is connected who has not said good-bye.
    fn is_quiet(&self) -> bool {
        self.pending.is_empty() && !self.tracked.iter().any(runs_on)
    }

    fn ask_for_flush(&self) {
        for process in self.tracked.iter().filter(|process| runs_on(process)) {
            // Its service thread looks at each turn, about every 50 ms.
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
        // Who joined or died since the last look, while this thread was behind, is recorded as
        // what it is: a hello that waits in a socket's queue is of a process that published.
        // By turns and not by time: however long what they published takes to read, it is there.
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
        // Who takes over goes on where the file ends.
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

/// Takes a process's messages, `most` of them. Returns whether anything came.
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
                // Of a newer library, or nonsense; either way it asks for nothing.
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
