//! The worker: host functions, stream callbacks and waits for memory words, each at its virtual time.
//!
//! One thread for the process, started when first needed, with all signals
//! blocked. It holds no lock while the program's function runs.

use crate::clock;
use crate::graph_exec::Run;
use crate::handle::Handle;
use crate::settings::settings;
use crate::work::{Comparison, HostCall, StreamCallback, ValueWait, ValueWrite};
use crate::world::{self, World};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How often a word in memory is looked at.
const POLL_NS: u64 = 20_000;

/// What the worker does for a stream.
pub enum Task {
    Call(HostCall),
    Callback(StreamCallback),
    WaitValue(ValueWait),
    /// A host node of a running graph, and the rest of the graph after it.
    GraphHost(HostCall, Box<Run>),
    GraphWaitValue(ValueWait, Box<Run>),
}

/// A task with the stream it stalls and the virtual time at which it is due.
pub struct Job {
    pub stream: Handle,
    pub due_ns: u64,
    pub task: Task,
}

impl World {
    /// Hands a job over; starts the worker if there is none.
    pub fn give_to_worker(&mut self, job: Job) {
        self.jobs.push(job);
        if !self.worker_runs {
            self.worker_runs = start_worker();
        }
        world::progress();
    }

    /// The job that is due first, or how long until there is one.
    fn take_job(&mut self) -> Result<Job, Option<Duration>> {
        let first = (0..self.jobs.len()).min_by_key(|&at| self.jobs[at].due_ns).ok_or(None)?;
        let due_ns = self.jobs[first].due_ns;
        if !settings().paced {
            clock::jump_to(due_ns);
        }
        let now_ns = clock::now_ns();
        if due_ns > now_ns {
            return Err(Some(Duration::from_nanos(due_ns - now_ns)));
        }
        Ok(self.jobs.swap_remove(first))
    }
}

fn start_worker() -> bool {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are memory of this frame; sigfillset initialises the first before it is read,
    // pthread_sigmask the second.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = std::thread::Builder::new().name("cuda-sim-host".into()).spawn(work).is_ok();
    // SAFETY: `before` was initialised by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}

fn work() {
    loop {
        let job = world::wait_or_look_again(&mut |world| world.take_job());
        match job.task {
            Task::Call(call) => {
                (call.function)(call.argument);
                world::with_effects_inside(|world| world.unstall(job.stream, clock::now_ns()));
            }
            Task::Callback(callback) => {
                (callback.function)(callback.stream, 0, callback.argument);
                world::with_effects_inside(|world| world.unstall(job.stream, clock::now_ns()));
            }
            Task::WaitValue(wait) if wait.holds() => {
                world::with_effects_inside(|world| world.unstall(job.stream, clock::now_ns()));
            }
            Task::GraphWaitValue(wait, run) if wait.holds() => {
                world::with_effects_inside(|world| world.resume_graph(job.stream, *run, clock::now_ns()));
            }
            task @ (Task::WaitValue(_) | Task::GraphWaitValue(..)) => {
                // Never jumps: the program has to get time to store the value.
                std::thread::sleep(Duration::from_nanos(POLL_NS));
                let job = Job { stream: job.stream, due_ns: clock::now_ns(), task };
                world::with(|world| world.jobs.push(job));
            }
            Task::GraphHost(call, run) => {
                (call.function)(call.argument);
                world::with_effects_inside(|world| world.resume_graph(job.stream, *run, clock::now_ns()));
            }
        }
    }
}

fn read_word(address: u64, wide: bool) -> u64 {
    // SAFETY: the address was checked against the memory map when the wait was enqueued, aligned to its
    // size; the program keeps the memory until its stream is done with it. Others write it concurrently, so
    // the access is atomic.
    unsafe {
        if wide {
            (*(address as *const AtomicU64)).load(Ordering::Acquire)
        } else {
            u64::from((*(address as *const AtomicU32)).load(Ordering::Acquire))
        }
    }
}

impl ValueWait {
    fn holds(&self) -> bool {
        let word = read_word(self.address, self.wide);
        match self.comparison {
            Comparison::AtLeast if self.wide => word.wrapping_sub(self.value) as i64 >= 0,
            Comparison::AtLeast => (word as u32).wrapping_sub(self.value as u32) as i32 >= 0,
            Comparison::Equal => word == self.value,
            Comparison::AnyBit => word & self.value != 0,
            Comparison::NotOr if self.wide => !(word | self.value) != 0,
            Comparison::NotOr => !(word as u32 | self.value as u32) != 0,
        }
    }
}

impl ValueWrite {
    /// Stores the word.
    pub fn run(&self) {
        // SAFETY: as for `read_word`.
        unsafe {
            if self.wide {
                (*(self.address as *const AtomicU64)).store(self.value, Ordering::Release);
            } else {
                (*(self.address as *const AtomicU32)).store(self.value as u32, Ordering::Release);
            }
        }
    }
}
