//! A short program's part of the stream: a bit of everything that anything is remembered of.

use gputrace_collector::batch::{Batch, Counters, Definition, ProcessBegin, ProcessEnd};
use gputrace_wire::call::{Call, Copy, Detail, Launch, Memory, direction, memory, operation, wait};
use gputrace_wire::caller::{Caller, CallerEntry};
use gputrace_wire::cell::{Cell, kind};
use gputrace_wire::clock::mark::ThreadBegin;
use gputrace_wire::clock::tick;
use gputrace_wire::definition::{Code, code_runtime, kind as is, line_table, origin_of};
use gputrace_wire::device::{DeviceCopy, DeviceGraph, Execution, Kernel};
use gputrace_wire::range::{RangeBegin, RangeEnd};

/// The session's first moment, and how long each program runs: 500 a second.
pub const BEGIN_NS: u64 = 1_000_000_000;
pub const LENGTH_NS: u64 = 2_000_000;
/// Of each program.
pub const LAUNCHES: u64 = 6;

const THREAD: u32 = 2;
const DEVICE: u32 = 3;
const CONTEXT: u32 = 4;
const STREAM: u32 = 5;
const FUNCTION: u32 = 6;
const NAME: u32 = 7;
const STACK: u32 = 9;
const RANGE: u32 = 10;
const APIS: [(u32, &str); 4] = [
    (20, "cuLaunchKernel"),
    (21, "cuMemcpyHtoDAsync_v2"),
    (22, "cuMemAlloc_v2"),
    (23, "cuStreamSynchronize"),
];

struct ShortProgram {
    number: u64,
    now_ns: u64,
    correlation: u32,
    host: Vec<Cell>,
    records: Vec<Cell>,
}

/// All that comes of the process of that number.
pub fn batches(number: u32) -> Vec<Batch> {
    let start_ns = BEGIN_NS + u64::from(number) * LENGTH_NS;
    let begin = ProcessBegin {
        process: number,
        pid: 1_000 + number,
        parent_pid: 1,
        tick_kind: tick::MONOTONIC_NS,
        ticks_per_second: 1_000_000_000,
        start_ticks: start_ns,
        start_monotonic_ns: start_ns,
        start_realtime_ns: start_ns,
        ..ProcessBegin::default()
    };
    let mut program = ShortProgram {
        number: number.into(),
        now_ns: start_ns,
        correlation: 0,
        host: vec![ThreadBegin { thread: THREAD, ticks: start_ns }.to_cell()],
        records: Vec::new(),
    };
    program.runs();
    let ShortProgram { now_ns, host, records, .. } = program;
    let end = match number % 3 {
        0 => ProcessEnd::Exit,
        1 => ProcessEnd::Vanished,
        _ => ProcessEnd::Exec,
    };
    vec![
        Batch::ProcessBegin(begin),
        Batch::Definitions { process: number, records: definitions(number) },
        Batch::Cells { process: number, ring: 0, cells: host },
        Batch::Cells { process: number, ring: 1, cells: records },
        Batch::Counters(Counters {
            process: number,
            sampled_hooks: 9,
            sampled_ticks: 900,
            ..Counters::default()
        }),
        Batch::ProcessEnd { process: number, end, monotonic_ns: now_ns },
    ]
}

fn definitions(number: u32) -> Vec<Definition> {
    let define = |kind, id, fields: &[u64], text: &[u8]| Definition {
        kind,
        id,
        fields: fields.to_vec(),
        text: text.to_vec(),
    };
    let of = u64::from;
    let mut device = vec![0; 24];
    (device[0], device[1]) = (0, 1 << 36);
    let table = [2u8, 1].repeat(20);
    let code = Code {
        runtime: code_runtime::CPYTHON,
        first_line: 1,
        table_form: line_table::LNOTAB,
        table_bytes: table.len() as u64,
        name: b"main",
        file: b"/home/me/short.py",
        ..Code::default()
    };
    // Each is given a span of its own to stand under.
    let parent = format!("00-{:032x}-{:016x}-01", u128::from(number) + 1, u64::from(number) + 1);
    let mut records = vec![
        define(is::PROCESS, 1, &[of(1_000 + number), 1, 13_000, 0], b"python\0short.py"),
        define(is::THREAD, THREAD, &[of(1_000 + number), 0], b"python"),
        define(is::DEVICE, DEVICE, &device, b"GPU"),
        define(is::CONTEXT, CONTEXT, &[7, of(DEVICE)], b""),
        define(is::STREAM, STREAM, &[0xabc, of(CONTEXT)], b""),
        define(is::NAME, NAME, &[], b"_ZN2at6native6kernelEv"),
        define(is::FUNCTION, FUNCTION, &[0, of(NAME), 0, 32], b""),
        define(is::CODE, STACK - 1, &code.fields(), &[&b"main/home/me/short.py"[..], &table].concat()),
        define(is::STACK, STACK, &[of(STACK - 1), 4], b""),
        define(is::RANGE, RANGE, &[], format!("request {number}").as_bytes()),
        define(is::ORIGIN, 11, &[origin_of::TRACEPARENT], parent.as_bytes()),
        define(is::ORIGIN, 12, &[origin_of::BAGGAGE], b"tenant=blue"),
    ];
    records.extend(APIS.map(|(id, name)| define(is::API, id, &[], name.as_bytes())));
    records
}

impl ShortProgram {
    fn runs(&mut self) {
        let caller = Caller { trace: [self.number + 1, 1], span: self.number + 1, flags: 1, remote: 1 };
        self.host.push(CallerEntry { caller, ticks: self.now_ns }.to_cell());
        let start_ticks = self.now_ns;
        let push = RangeBegin { kind: kind::RANGE_PUSH, range: RANGE, start_ticks, ..RangeBegin::default() };
        self.host.push(push.to_cell());
        self.memory(kind::ALLOC, 0);
        self.copy();
        // Of the last ones no record comes: they were in flight.
        for launch in 0..LAUNCHES {
            self.launch(launch < LAUNCHES - 2);
        }
        self.graph();
        self.call(
            kind::CALL,
            23,
            0,
            Detail::Other { operation: operation::RECORD, value: 0xe0 + self.number },
        );
        self.call(kind::WAIT, 23, 0, Detail::Wait { what: wait::STREAM, handle: 0xabc });
        // What was asked for in vain, and for good.
        self.memory(kind::ALLOC, 2);
        self.call(kind::WAIT, 23, 700, Detail::Wait { what: wait::STREAM, handle: 0xabc });
        let end_ticks = self.now_ns;
        let pop =
            RangeEnd { kind: kind::RANGE_POP, range: RANGE, start_ticks, end_ticks, ..RangeEnd::default() };
        self.host.push(pop.to_cell());
        // One is open as long as the process runs.
        self.host.push(push.to_cell());
    }

    fn call(&mut self, kind: u16, api: u32, status: u16, detail: Detail) {
        let call = Call {
            kind,
            api,
            start_ticks: self.now_ns,
            duration_ticks: 60_000,
            correlation: self.correlation,
            stack: STACK,
            stream: STREAM,
            status,
            detail,
            ..Call::default()
        };
        self.host.push(call.to_cell());
        self.now_ns += 100_000;
    }

    fn execution(&mut self) -> Execution {
        self.correlation += 1;
        let start_ns = self.now_ns + 2_000;
        Execution {
            correlation: self.correlation,
            start_ns,
            end_ns: start_ns + 50_000,
            stream: 13,
            ..Execution::default()
        }
    }

    fn launch(&mut self, has_record: bool) {
        let launch = Launch { function: FUNCTION, grid: [8, 1, 1], block: [128, 1, 1], ..Launch::default() };
        let execution = self.execution();
        if has_record {
            let (grid, block) = (launch.grid, launch.block);
            let record = Kernel { execution, name: NAME, grid, block, registers: 32, ..Kernel::default() };
            self.records.extend(record.to_cells());
        }
        self.call(kind::LAUNCH, 20, 0, Detail::Launch(launch));
    }

    fn graph(&mut self) {
        let execution = Execution { graph: 3, ..self.execution() };
        self.records.push(DeviceGraph { execution }.to_cell());
        self.call(kind::GRAPH_LAUNCH, 20, 0, Detail::GraphLaunch { graph: 0 });
    }

    fn copy(&mut self) {
        let (bytes, copy_kind) = (1 << 20, direction::HOST_TO_DEVICE);
        let execution = self.execution();
        self.records.push(DeviceCopy { execution, bytes, copy_kind, ..DeviceCopy::default() }.to_cell());
        self.call(kind::COPY, 21, 0, Detail::Copy(Copy { direction: copy_kind, bytes, count: 1 }));
    }

    fn memory(&mut self, kind: u16, status: u16) {
        let address = 0x7f00_0000_0000 + self.number * 4096;
        let what = Memory { memory: memory::DEVICE, bytes: 4096, address, ..Memory::default() };
        self.call(kind, 22, status, Detail::Memory(what));
    }
}
