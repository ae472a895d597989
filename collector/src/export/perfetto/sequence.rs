//! Sequences of packets: each has a clock that counts on from packet to packet, and numbers for its names.
//!
//! A track's events are all in one sequence, in the order in which they nest. Tracks share sequences when
//! there are many; then a packet whose time lies before the one before it has its whole time instead of a
//! difference.

use std::hash::{Hash, Hasher};
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use crate::aggregate::Leaf;
use crate::export::perfetto::message::Message;
use crate::model::operation::Kernel;
use crate::names::line_safe;

/// Sequence numbers with one byte.
pub const SEQUENCES_MAX: u32 = 120;
/// A sequence with more names forgets them all and begins again, as the format allows.
const NAMES_MAX: usize = 1 << 14;
/// So many bytes are collected for one write.
const WRITE_BYTES: usize = 1 << 16;
/// The clock of a sequence's differences: the first number that a sequence may give to a clock of its own.
const DELTA_CLOCK: u64 = 64;
/// Perfetto's numbers for CLOCK_REALTIME and CLOCK_BOOTTIME. Both have the time since the Unix epoch here:
/// the second is the one that Perfetto converts to, the first lets it show dates.
const REALTIME: u64 = 1;
const BOOTTIME: u64 = 6;
/// Perfetto's times are signed.
const TIME_MAX: u64 = i64::MAX as u64;

/// The field numbers of Perfetto's messages.
mod field {
    pub const TRACE_PACKET: u32 = 1;
    pub mod packet {
        pub const CLOCK_SNAPSHOT: u32 = 6;
        pub const TIMESTAMP: u32 = 8;
        pub const SEQUENCE: u32 = 10;
        pub const EVENT: u32 = 11;
        pub const INTERNED: u32 = 12;
        pub const FLAGS: u32 = 13;
        pub const CLOCK: u32 = 58;
        pub const DEFAULTS: u32 = 59;
        pub const TRACK: u32 = 60;
    }
    pub mod event {
        pub const CATEGORY: u32 = 3;
        pub const ANNOTATION: u32 = 4;
        pub const TYPE: u32 = 9;
        pub const NAME: u32 = 10;
        pub const TRACK: u32 = 11;
        pub const COUNTER_VALUE: u32 = 30;
        pub const SOURCE: u32 = 34;
        pub const FLOW: u32 = 47;
        pub const FLOW_END: u32 = 48;
    }
    pub mod annotation {
        pub const KEY: u32 = 1;
        pub const UNSIGNED: u32 = 3;
        pub const TEXT: u32 = 17;
    }
    pub mod interned {
        pub const CATEGORY: u32 = 1;
        pub const NAME: u32 = 2;
        pub const KEY: u32 = 3;
        pub const SOURCE: u32 = 4;
        pub const TEXT: u32 = 29;
    }
}

/// What an event is, by Perfetto's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventType {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// An event's category.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventCategory {
    Call = 1,
    Kernel,
    Memcpy,
    Memset,
    Graph,
    Range,
    /// Executed, but without device times.
    Untimed,
}

/// The key of an annotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnnotationKey {
    Correlation = 1,
    Stack,
    Status,
    Bytes,
    Launch,
    Graph,
    Node,
    Nodes,
    Span,
    Unfinished,
    Continued,
    Count,
}

impl EventCategory {
    const fn name(self) -> &'static str {
        match self {
            EventCategory::Call => "call",
            EventCategory::Kernel => "kernel",
            EventCategory::Memcpy => "memcpy",
            EventCategory::Memset => "memset",
            EventCategory::Graph => "graph",
            EventCategory::Range => "range",
            EventCategory::Untimed => "untimed",
        }
    }
}

impl AnnotationKey {
    const fn name(self) -> &'static str {
        match self {
            AnnotationKey::Correlation => "correlation",
            AnnotationKey::Stack => "stack",
            AnnotationKey::Status => "status",
            AnnotationKey::Bytes => "bytes",
            AnnotationKey::Launch => "launch",
            AnnotationKey::Graph => "graph",
            AnnotationKey::Node => "node",
            AnnotationKey::Nodes => "nodes",
            AnnotationKey::Span => "span",
            AnnotationKey::Unfinished => "unfinished",
            AnnotationKey::Continued => "continued",
            AnnotationKey::Count => "count",
        }
    }
}

/// The name of an event. Definitions have numbers within their process, which comes first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Name {
    Call(u32, u32),
    Leaf(u32, Leaf),
    Range(u32, u32),
    Fixed(&'static str),
}

/// The text of an annotation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AnnotationText {
    Stack(u32, u32),
    Launch(Kernel),
    Span(u32, u32),
    Status(u16),
}

/// A place in code.
pub struct SourceText<'a> {
    pub function: &'a str,
    pub file: &'a str,
    /// 0 if it is not known.
    pub line: u32,
}

/// Where packets go to.
pub struct Packets {
    to: Box<dyn Write>,
    buffer: Message,
    /// When the trace begins: no time of a sequence's clock lies before it.
    begin_ns: u64,
}

impl Packets {
    pub fn new(to: Box<dyn Write>) -> Packets {
        Packets { to, buffer: Message::default(), begin_ns: 0 }
    }

    /// Sets the begin of the trace. Later calls change nothing: clocks must agree.
    pub fn begins(&mut self, at_ns: u64) {
        if self.begin_ns == 0 {
            self.begin_ns = at_ns.min(TIME_MAX);
        }
    }

    #[inline(always)]
    fn packet(&mut self, build: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.buffer.message(field::TRACE_PACKET, build);
        if self.buffer.len() < WRITE_BYTES {
            return Ok(());
        }
        self.flush()
    }

    /// Writes what was collected.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(self.buffer.as_bytes())?;
        self.buffer.clear();
        Ok(())
    }

    /// Flushes what is under the packets too.
    pub fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        self.to.flush()
    }
}

/// The numbers of one kind of names in a sequence.
#[derive(Debug)]
struct NameNumbers<K>(FxHashMap<K, u32>);

impl<K: Eq + Hash> NameNumbers<K> {
    /// A name's number, and whether it is new.
    #[inline(always)]
    fn of(&mut self, key: K) -> (u64, bool) {
        let next = self.0.len() as u32 + 1;
        let number = *self.0.entry(key).or_insert(next);
        (number.into(), number == next)
    }
}

/// A sequence of packets.
#[derive(Debug)]
pub struct Sequence {
    number: u64,
    has_begun: bool,
    last_ns: u64,
    /// The track of events that name none.
    own_track: u64,
    names: NameNumbers<Name>,
    texts: NameNumbers<AnnotationText>,
    /// Kernels by process and name definition.
    sources: NameNumbers<(u32, u32)>,
    /// Categories and keys that were written, by bit.
    categories: u32,
    keys: u32,
    /// The numbers of a kernel's name, source and launch: one look-up for the three.
    kernels: FxHashMap<InternedKernel, [u64; 3]>,
    /// Names that the next packet defines.
    interned: Message,
}

/// A kernel by process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct InternedKernel(u32, Kernel);

impl Hash for InternedKernel {
    /// By what most kernels differ in, since all of it takes longer than the look-up.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let InternedKernel(process, kernel) = self;
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let ([grid_x, grid_y, grid_z], [block_x, ..]) = (kernel.grid, kernel.block);
        state.write_u64(pair(kernel.name, *process));
        state.write_u64(pair(grid_x, grid_y));
        state.write_u64(pair(grid_z, block_x));
    }
}

/// What an event contains: written into its packet as it is added, and names to those of the sequence.
pub struct EventFields<'a> {
    sequence: &'a mut Sequence,
    to: &'a mut Message,
}

impl Sequence {
    pub fn new(number: u32, own_track: u64) -> Sequence {
        Sequence {
            number: number.into(),
            has_begun: false,
            last_ns: 0,
            own_track,
            names: NameNumbers(FxHashMap::default()),
            texts: NameNumbers(FxHashMap::default()),
            sources: NameNumbers(FxHashMap::default()),
            categories: 0,
            keys: 0,
            kernels: FxHashMap::default(),
            interned: Message::default(),
        }
    }

    /// Begins the sequence, or begins it again where it has too many names.
    #[inline(always)]
    fn start(&mut self, to: &mut Packets) -> io::Result<()> {
        let names = self.names.0.len() + self.texts.0.len() + self.sources.0.len() + self.kernels.len();
        if !self.has_begun || names > NAMES_MAX {
            self.head(to)?;
        }
        Ok(())
    }

    /// States the clocks, and forgets all names.
    fn head(&mut self, to: &mut Packets) -> io::Result<()> {
        self.names.0.clear();
        self.texts.0.clear();
        self.sources.0.clear();
        self.kernels.clear();
        (self.categories, self.keys) = (0, 0);
        (self.has_begun, self.last_ns) = (true, to.begin_ns);
        let begin_ns = to.begin_ns;
        to.packet(|packet| {
            packet.number(field::packet::SEQUENCE, self.number);
            packet.number(field::packet::FLAGS, 1);
            packet.message(field::packet::DEFAULTS, |defaults| {
                defaults.number(field::packet::CLOCK, DELTA_CLOCK);
                defaults
                    .message(field::packet::EVENT, |event| event.number(field::event::TRACK, self.own_track));
            });
            packet.message(field::packet::CLOCK_SNAPSHOT, |snapshot| {
                for clock in [DELTA_CLOCK, REALTIME, BOOTTIME] {
                    snapshot.message(1, |of| {
                        of.number(1, clock);
                        of.number(2, begin_ns);
                        if clock == DELTA_CLOCK {
                            of.number(3, 1);
                        }
                    });
                }
                snapshot.number(2, BOOTTIME);
            });
        })
    }

    /// Writes an event as one packet; `build` adds what it contains.
    #[inline(always)]
    pub fn event(
        &mut self,
        to: &mut Packets,
        (event, track, at_ns): (EventType, u64, u64),
        build: impl FnOnce(&mut EventFields<'_>),
    ) -> io::Result<()> {
        self.start(to)?;
        let at_ns = at_ns.min(TIME_MAX);
        to.packet(|packet| {
            match at_ns.checked_sub(self.last_ns) {
                Some(passed_ns) => packet.number(field::packet::TIMESTAMP, passed_ns),
                None => {
                    packet.number(field::packet::TIMESTAMP, at_ns);
                    packet.number(field::packet::CLOCK, BOOTTIME);
                }
            }
            self.last_ns = self.last_ns.max(at_ns);
            packet.number(field::packet::SEQUENCE, self.number);
            packet.message(field::packet::EVENT, |message| {
                message.number(field::event::TYPE, event as u64);
                if track != self.own_track {
                    message.number(field::event::TRACK, track);
                }
                build(&mut EventFields { sequence: self, to: message });
            });
            // The flag asks readers to skip the packet if they missed earlier names, which no reader of a
            // whole file does.
            if !self.interned.is_empty() {
                packet.number(field::packet::FLAGS, 2);
                packet.bytes(field::packet::INTERNED, self.interned.as_bytes());
                self.interned.clear();
            }
        })
    }

    /// Describes a track.
    pub fn describe(&mut self, to: &mut Packets, build: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.start(to)?;
        to.packet(|packet| {
            packet.number(field::packet::SEQUENCE, self.number);
            packet.message(field::packet::TRACK, build);
        })
    }
}

impl EventFields<'_> {
    #[inline(always)]
    pub fn category(&mut self, category: EventCategory) {
        let number = category as u64;
        if self.sequence.categories & 1 << number == 0 {
            self.sequence.categories |= 1 << number;
            define(&mut self.sequence.interned, field::interned::CATEGORY, number, category.name());
        }
        self.to.number(field::event::CATEGORY, number);
    }

    #[inline(always)]
    fn annotation(&mut self, key: u64, kind: u32, value: u64) {
        self.to.pair(field::event::ANNOTATION, (field::annotation::KEY, key), (kind, value));
    }

    /// Adds the name, the source and the launch of a kernel if an earlier event of the sequence had them.
    #[inline(always)]
    pub fn known_kernel(&mut self, process: u32, kernel: &Kernel) -> bool {
        let Some([name, source, launch]) =
            self.sequence.kernels.get(&InternedKernel(process, *kernel)).copied()
        else {
            return false;
        };
        self.to.number(field::event::NAME, name);
        self.to.number(field::event::SOURCE, source);
        self.annotation(AnnotationKey::Launch as u64, field::annotation::TEXT, launch);
        true
    }

    /// Remembers the numbers that the methods for a kernel's name, source and launch returned.
    pub fn learn_kernel(&mut self, process: u32, kernel: &Kernel, numbers: [u64; 3]) {
        self.sequence.kernels.insert(InternedKernel(process, *kernel), numbers);
    }

    #[inline(always)]
    pub fn name(&mut self, name: Name, text: impl FnOnce() -> String) -> u64 {
        let (number, is_new) = self.sequence.names.of(name);
        if is_new {
            define(&mut self.sequence.interned, field::interned::NAME, number, &text());
        }
        self.to.number(field::event::NAME, number);
        number
    }

    /// Connects the events with this id in the order of their times.
    #[inline(always)]
    pub fn flow(&mut self, id: u64) {
        self.to.fixed64(field::event::FLOW, id);
    }

    /// The same for the last event with this id.
    #[inline(always)]
    pub fn flow_end(&mut self, id: u64) {
        self.to.fixed64(field::event::FLOW_END, id);
    }

    /// The code of an event, by process and name definition.
    #[inline(always)]
    pub fn source(&mut self, of: (u32, u32), write: impl FnOnce(&mut dyn FnMut(SourceText<'_>))) -> u64 {
        let (number, is_new) = self.sequence.sources.of(of);
        if is_new {
            write(&mut |source| {
                self.sequence.interned.message(field::interned::SOURCE, |message| {
                    message.number(1, number);
                    message.text(2, &line_safe(source.file));
                    message.text(3, &line_safe(source.function));
                    message.number(4, source.line.into());
                });
            });
        }
        self.to.number(field::event::SOURCE, number);
        number
    }

    #[inline(always)]
    fn key(&mut self, key: AnnotationKey) -> u64 {
        let number = key as u64;
        if self.sequence.keys & 1 << number == 0 {
            self.sequence.keys |= 1 << number;
            define(&mut self.sequence.interned, field::interned::KEY, number, key.name());
        }
        number
    }

    #[inline(always)]
    pub fn number(&mut self, key: AnnotationKey, value: u64) {
        let key = self.key(key);
        self.annotation(key, field::annotation::UNSIGNED, value);
    }

    #[inline(always)]
    pub fn text(&mut self, key: AnnotationKey, of: AnnotationText, text: impl FnOnce() -> String) -> u64 {
        let key = self.key(key);
        let (number, is_new) = self.sequence.texts.of(of);
        if is_new {
            define(&mut self.sequence.interned, field::interned::TEXT, number, &text());
        }
        self.annotation(key, field::annotation::TEXT, number);
        number
    }

    pub fn counter_value(&mut self, value: i64) {
        self.to.number(field::event::COUNTER_VALUE, value.cast_unsigned());
    }
}

fn define(to: &mut Message, kind: u32, number: u64, text: &str) {
    to.message(kind, |entry| {
        entry.number(1, number);
        entry.text(2, &line_safe(text));
    });
}
