//! Passes on to the program what was sent to us alone, and not what our process group got: that it has.
//!
//! A supervisor that signals the whole group (coreutils' `timeout` its child and then the group) would reach
//! the program twice, and to many a program the second SIGTERM means to leave all behind. Signal handlers
//! write what they hear into a pipe, so does the [`Witness`], and one thread reads it and decides by
//! [`Arrivals`]. What the group got is passed on to a program that left it, unless it was sent to each process
//! ([`ToEach`]). Where thread or witness cannot be had, everything is passed on at once.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use libc::c_int;

use crate::launch::arrivals::{Arrivals, Group};
use crate::launch::heard::{By, Heard, MESSAGE_BYTES};
use crate::launch::signals;
use crate::launch::to_each::ToEach;
use crate::launch::witness::Witness;

/// Where handlers write what they hear; -1 while nobody decides.
static TOLD: AtomicI32 = AtomicI32::new(-1);

/// How long the witness may take to answer on a machine with a load.
const PATIENCE: Duration = Duration::from_secs(1);
/// For the thread, where memory is limited; it needs little.
const STACK_BYTES: usize = 256 << 10;

/// Tells the thread that decides. False if there is none, or it has too much to do. Async-signal-safe.
pub fn tell(by: By, heard: Heard) -> bool {
    let told = TOLD.load(Ordering::SeqCst);
    let message = heard.message(by);
    // SAFETY: the message lives through the call; the pipe does not block and is never closed.
    told >= 0
        && unsafe { libc::write(told, message.as_ptr().cast(), message.len()) } == message.len() as isize
}

/// The thread and the witness, which end with this.
#[derive(Debug)]
pub struct GroupSignals {
    thread: Option<JoinHandle<()>>,
}

impl GroupSignals {
    /// Before the command of so many words is started.
    pub fn start(words: usize) -> Option<GroupSignals> {
        let mut ends = [-1; 2];
        // SAFETY: the array takes the two descriptors, which are owned from here on.
        let (read, write) = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
                return None;
            }
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        let (is_ready, ready) = sync_channel(1);
        let told = write.as_raw_fd();
        let builder = Builder::new().name("gputrace-signals".into()).stack_size(STACK_BYTES);
        let thread = builder.spawn(move || decide(read, told, words, &is_ready)).ok()?;
        if ready.recv() != Ok(true) {
            let _ = thread.join();
            return None;
        }
        // A handler may be about to write to it, whatever happened since: it stays open.
        TOLD.store(write.into_raw_fd(), Ordering::SeqCst);
        Some(GroupSignals { thread: Some(thread) })
    }
}

impl Drop for GroupSignals {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        while !tell(By::End, Heard::NOTHING) && !thread.is_finished() {
            std::thread::yield_now();
        }
        TOLD.store(-1, Ordering::SeqCst);
        let _ = thread.join();
    }
}

/// The thread. The witnesses are its children: they are not among the main thread's, where the program is
/// alone, and end with this thread.
fn decide(read: OwnedFd, told: c_int, words: usize, is_ready: &SyncSender<bool>) {
    // For good: no handler runs on this thread, and the witness begins so.
    std::mem::forget(signals::hold());
    let witness = Witness::start(By::Witness, told, words);
    let _ = is_ready.send(witness.is_some());
    let Some(witness) = witness else { return };
    // The program has to come and leave the group before this one is needed, and does not wait for it.
    let outsider = Witness::start(By::Outsider, told, words);
    let mut desk = Desk {
        read: File::from(read),
        arrivals: Arrivals::default(),
        to_each: ToEach::default(),
        asked: 0,
        answered: 0,
        has_ended: false,
    };
    while !desk.has_ended {
        desk.hear_until(desk.to_each.due().into_iter().chain(desk.arrivals.due()).min());
        let now = Instant::now();
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        if !desk.has_ended && is_due(desk.to_each.due()) {
            desk.ask(outsider.as_ref());
            while let Some(heard) = desk.to_each.the_groups(now) {
                signals::send(heard);
            }
        }
        if !desk.has_ended && is_due(desk.arrivals.due()) {
            desk.ask(Some(&witness));
            while let Some(heard) = desk.arrivals.ours_alone(now) {
                signals::send(heard);
            }
        }
    }
}

/// What comes out of the pipe, and what it leads to.
struct Desk {
    read: File,
    arrivals: Arrivals,
    to_each: ToEach,
    /// The last question to a witness, and the last that one answered.
    asked: usize,
    answered: usize,
    has_ended: bool,
}

impl Desk {
    /// Hears all that reached a witness until now: what it has not told when it answers did not reach it.
    fn ask(&mut self, witness: Option<&Witness>) {
        self.asked += 1;
        if witness.is_some_and(|witness| witness.ask(self.asked)) {
            let deadline = Instant::now() + PATIENCE;
            while self.answered < self.asked && !self.has_ended && Instant::now() < deadline {
                self.hear_until(Some(deadline));
            }
        }
    }

    /// Waits until something is heard, at most until then, and takes what there is.
    fn hear_until(&mut self, deadline: Option<Instant>) {
        let wait = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // Rounded up, or the last millisecond would be spent looking.
        let wait_ms =
            wait.map_or(-1, |wait| c_int::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX));
        let mut poll = libc::pollfd { fd: self.read.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        unsafe { libc::poll(&raw mut poll, 1, wait_ms) };
        // Messages are written whole, and this takes so many whole ones.
        let mut messages = [0; 64 * MESSAGE_BYTES];
        let Ok(bytes) = self.read.read(&mut messages) else { return };
        let now = Instant::now();
        for message in messages.get(..bytes).unwrap_or_default().as_chunks().0 {
            self.take(message, now);
        }
    }

    fn take(&mut self, message: &[u8; MESSAGE_BYTES], now: Instant) {
        let Some((by, heard)) = Heard::from_message(message) else { return };
        let to_the_group = match by {
            By::Us => self.arrivals.reached_us(heard, false, now),
            By::UsEarly if !heard.may_be_the_groups() => None,
            By::UsEarly => self.arrivals.reached_us(heard, true, now),
            By::Witness => self.arrivals.reached_the_witness(heard, now),
            By::Outsider => {
                if signals::has_program_left_our_group() {
                    self.to_each.reached_the_outsider(heard, now);
                }
                None
            }
            By::Answer => {
                self.answered = self.answered.max(heard.value);
                None
            }
            By::End => {
                self.has_ended = true;
                None
            }
        };
        if let Some(Group(heard)) = to_the_group
            && signals::has_program_left_our_group()
        {
            self.to_each.reached_the_group(heard, now);
        }
    }
}
