//! What following every allocation takes: a million live ones and as many calls as are asked for.
//!
//! `cargo bench -p gputrace-collector --bench memory_ledger -- [CALLS [STACKS]]`, or `scripts/bench-memory`.
//! It prints the resident memory that the ledger added, and the processor time of each tenth of the calls,
//! and fails beyond the bounds. Addresses ascend at first, as a driver gives them; then random ones of the
//! million are freed and allocated again, from four threads, on as many stacks as are asked for.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use gputrace_collector::memory::{MemoryLedger, ProcessMemory};
use gputrace_collector::model::definitions::Definitions;
use gputrace_collector::model::operation::HostCall;
use gputrace_wire::call::{Detail, Memory, memory};
use gputrace_wire::cell::kind;
use rustix::time::{ClockId, clock_gettime};

const LIVE: u64 = 1_000_000;
const CALLS: u64 = 20_000_000;
const STACKS: u64 = 1_000;
const THREADS: u64 = 4;
/// Devices give memory of small allocations in pieces of 512 bytes.
const APART: u64 = 512;
/// The bound on resident memory, and on the last tenth of the calls against the first after all are live.
const BYTES_MAX: u64 = 64 << 20;
const SLOWER_MAX: f64 = 1.5;

/// A pseudo-random sequence: the same in each run.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// The processor time of this thread, which a busy machine changes little.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

struct AllocatingProgram {
    ledger: MemoryLedger,
    definitions: Definitions,
    now_ns: u64,
    sequence: RandomNumbers,
    stacks: u64,
}

impl AllocatingProgram {
    fn call(&mut self, kind: u16, number: u64) {
        self.now_ns += 100;
        let bytes = if kind == kind::ALLOC { 512 << (number % 10) } else { 0 };
        let address = (1 << 40) + number * APART;
        let stack = u32::try_from(self.sequence.next() % self.stacks).unwrap();
        let call = HostCall {
            kind,
            thread: u32::try_from(number % THREADS).unwrap(),
            stack,
            api: 1,
            start_ns: self.now_ns,
            duration_ns: 90,
            detail: Detail::Memory(Memory { memory: memory::DEVICE, bytes, address, ..Memory::default() }),
            ..HostCall::default()
        };
        self.ledger.add(&call, &self.definitions);
    }

    fn replace_one(&mut self) {
        let number = self.sequence.next() % LIVE;
        self.call(kind::FREE, number);
        self.call(kind::ALLOC, number);
    }

    fn process(&self) -> &ProcessMemory {
        self.ledger.process(0).unwrap()
    }
}

fn main() {
    let mut asked = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let calls = asked.next().unwrap_or(CALLS);
    let stacks = asked.next().unwrap_or(STACKS);
    let mut program = AllocatingProgram {
        ledger: MemoryLedger::default(),
        definitions: Definitions::default(),
        now_ns: 1,
        sequence: RandomNumbers(0x9e37_79b9_7f4a_7c15),
        stacks,
    };
    let before = resident_bytes();
    let began = processor_time();
    (0..LIVE).for_each(|number| program.call(kind::ALLOC, number));
    let made = resident_bytes().saturating_sub(before);
    println!(
        "{LIVE} live, addresses ascend: {:.1} MiB, {:.1} bytes each, {:.0} ns a call",
        made as f64 / f64::from(1 << 20),
        made as f64 / LIVE as f64,
        (processor_time() - began).as_nanos() as f64 / LIVE as f64
    );
    let tenth = calls.div_ceil(20);
    let mut times = Vec::new();
    let mut most = made;
    for number in 1..=10 {
        let began = processor_time();
        (0..tenth).for_each(|_| program.replace_one());
        let ns = (processor_time() - began).as_nanos() as f64 / (2 * tenth) as f64;
        let held = resident_bytes().saturating_sub(before);
        most = most.max(held);
        println!(
            "{} calls: {:.1} MiB, {ns:.0} ns a call",
            2 * tenth * number,
            held as f64 / f64::from(1 << 20)
        );
        times.push(ns);
    }
    program.ledger.process_ends(0, program.now_ns);
    let process = program.process();
    assert_eq!(process.on_device.count, LIVE);
    assert_eq!(process.not_followed.count, 0);
    let slower = times.last().unwrap() / times.first().unwrap();
    println!(
        "at most {:.1} MiB beyond an empty ledger; the last tenth took {slower:.2} of the first",
        most as f64 / f64::from(1 << 20)
    );
    assert!(most <= BYTES_MAX, "more than {} MiB", BYTES_MAX >> 20);
    assert!(slower <= SLOWER_MAX, "not linear");
}
