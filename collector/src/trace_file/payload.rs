//! Payloads of all batches but cells. New fields are added at the end: a reader ignores unknown fields, and
//! takes 0 for missing ones.

use gputrace_wire::counter::Counter;
use gputrace_wire::definition::{FIELDS_MAX, TEXT_MAX};

use crate::batch::{
    Counters, Definition, Excerpt, LeftOut, ProcessBegin, ProcessEnd, SeriesFile, SeriesMark, SessionBegin,
    SizeLimit,
};
use crate::trace_file::bytes::{Bytes, put_text, put_varint};

pub fn put_session_begin(out: &mut Vec<u8>, begin: &SessionBegin) {
    put_varint(out, begin.realtime_ns);
    put_varint(out, begin.monotonic_ns);
    put_text(out, begin.recorder.as_bytes());
    put_varint(out, begin.command.len() as u64);
    begin.command.iter().for_each(|argument| put_text(out, argument.as_bytes()));
    put_text(out, begin.traceparent.as_bytes());
    put_varint(out, begin.hands_on.into());
}

pub fn session_begin(payload: &[u8]) -> Option<SessionBegin> {
    let mut bytes = Bytes::new(payload);
    let (realtime_ns, monotonic_ns) = (bytes.varint()?, bytes.varint()?);
    let recorder = lossy(bytes.text()?);
    let count = bytes.count()?;
    let command = (0..count).map(|_| bytes.text().map(lossy)).collect::<Option<_>>()?;
    let traceparent = bytes.text().map(lossy).unwrap_or_default();
    let hands_on = bytes.varint() == Some(1);
    Some(SessionBegin { recorder, command, realtime_ns, monotonic_ns, traceparent, hands_on })
}

pub fn put_excerpt(out: &mut Vec<u8>, excerpt: &Excerpt) {
    for value in [excerpt.window_ns, excerpt.from_ns, excerpt.to_ns] {
        put_varint(out, value);
    }
    put_text(out, excerpt.reason.as_bytes());
    excerpt.left_out.values().into_iter().for_each(|value| put_varint(out, value));
}

pub fn excerpt(payload: &[u8]) -> Option<Excerpt> {
    let mut bytes = Bytes::new(payload);
    let (window_ns, from_ns, to_ns) = (bytes.varint()?, bytes.varint()?, bytes.varint()?);
    let reason = lossy(bytes.text()?);
    Some(Excerpt { window_ns, from_ns, to_ns, reason, left_out: left_out(&mut bytes)? })
}

fn left_out(bytes: &mut Bytes<'_>) -> Option<LeftOut> {
    let mut values = LeftOut::default().values();
    for value in &mut values {
        *value = bytes.varint()?;
    }
    Some(LeftOut::from_values(values))
}

pub fn put_size_limit(out: &mut Vec<u8>, limit: &SizeLimit) {
    put_varint(out, limit.max_bytes);
    limit.left_out.values().into_iter().for_each(|value| put_varint(out, value));
}

pub fn size_limit(payload: &[u8]) -> Option<SizeLimit> {
    let mut bytes = Bytes::new(payload);
    Some(SizeLimit { max_bytes: bytes.varint()?, left_out: left_out(&mut bytes)? })
}

pub fn put_series_file(out: &mut Vec<u8>, file: &SeriesFile) {
    put_varint(out, file.number.into());
    put_varint(out, u64::from(file.mark as u32));
    put_varint(out, file.cut_ns);
}

pub fn series_file(payload: &[u8]) -> Option<SeriesFile> {
    let mut bytes = Bytes::new(payload);
    let number = bytes.u32()?;
    let mark = match bytes.varint()? {
        1 => SeriesMark::Begins,
        2 => SeriesMark::Repeated,
        3 => SeriesMark::GoesOn,
        _ => return None,
    };
    Some(SeriesFile { number, mark, cut_ns: bytes.varint()? })
}

pub fn put_unrecorded(out: &mut Vec<u8>, lines: &[String]) {
    put_varint(out, lines.len() as u64);
    lines.iter().for_each(|line| put_text(out, line.as_bytes()));
}

pub fn unrecorded(payload: &[u8]) -> Option<Vec<String>> {
    let mut bytes = Bytes::new(payload);
    let count = bytes.varint()?;
    // Grows with the bytes that exist, since the count is untrusted.
    let mut lines = Vec::new();
    for _ in 0..count {
        lines.push(lossy(bytes.text()?));
    }
    Some(lines)
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

pub fn put_process_begin(out: &mut Vec<u8>, begin: &ProcessBegin) {
    for value in [begin.pid, begin.parent_pid, begin.generation, begin.tick_kind] {
        put_varint(out, value.into());
    }
    for value in
        [begin.ticks_per_second, begin.start_ticks, begin.start_monotonic_ns, begin.start_realtime_ns]
    {
        put_varint(out, value);
    }
}

pub fn process_begin(process: u32, payload: &[u8]) -> Option<ProcessBegin> {
    let mut bytes = Bytes::new(payload);
    Some(ProcessBegin {
        process,
        pid: bytes.u32()?,
        parent_pid: bytes.u32()?,
        generation: bytes.u32()?,
        tick_kind: bytes.u32()?,
        ticks_per_second: bytes.varint()?,
        start_ticks: bytes.varint()?,
        start_monotonic_ns: bytes.varint()?,
        start_realtime_ns: bytes.varint()?,
    })
}

pub fn put_definition(out: &mut Vec<u8>, definition: &Definition) {
    put_varint(out, definition.kind.into());
    put_varint(out, definition.id.into());
    put_varint(out, definition.fields.len() as u64);
    definition.fields.iter().for_each(|field| put_varint(out, *field));
    put_text(out, &definition.text);
}

pub fn definitions(payload: &[u8]) -> Option<Vec<Definition>> {
    let mut bytes = Bytes::new(payload);
    let count = bytes.count()?;
    let mut records = Vec::new();
    for _ in 0..count {
        let (kind, id) = (bytes.u16()?, bytes.u32()?);
        let fields = bytes.count().filter(|count| *count <= FIELDS_MAX)?;
        let fields = (0..fields).map(|_| bytes.varint()).collect::<Option<_>>()?;
        let text = bytes.text().filter(|text| text.len() <= TEXT_MAX)?.to_vec();
        records.push(Definition { kind, id, fields, text });
    }
    Some(records)
}

pub fn put_counters(out: &mut Vec<u8>, counters: &Counters) {
    for value in [counters.ring_full, counters.written, counters.sampled_hooks, counters.sampled_ticks] {
        put_varint(out, value);
    }
    put_varint(out, counters.values.len() as u64);
    counters.values.iter().for_each(|value| put_varint(out, *value));
    put_varint(out, counters.counted_launches);
}

pub fn counters(process: u32, payload: &[u8]) -> Option<Counters> {
    let mut bytes = Bytes::new(payload);
    let mut counters = Counters {
        process,
        ring_full: bytes.varint()?,
        written: bytes.varint()?,
        sampled_hooks: bytes.varint()?,
        sampled_ticks: bytes.varint()?,
        values: [0; Counter::COUNT],
        counted_launches: 0,
    };
    let count = bytes.count()?;
    for index in 0..count {
        let value = bytes.varint()?;
        if let Some(known) = counters.values.get_mut(index) {
            *known = value;
        }
    }
    counters.counted_launches = bytes.varint().unwrap_or(0);
    Some(counters)
}

pub fn put_process_end(out: &mut Vec<u8>, end: ProcessEnd, monotonic_ns: u64) {
    put_varint(
        out,
        match end {
            ProcessEnd::Exit => 1,
            ProcessEnd::Exec => 2,
            ProcessEnd::Vanished => 3,
            ProcessEnd::Running => 4,
        },
    );
    put_varint(out, monotonic_ns);
}

pub fn process_end(payload: &[u8]) -> Option<(ProcessEnd, u64)> {
    let mut bytes = Bytes::new(payload);
    let end = match bytes.varint()? {
        1 => ProcessEnd::Exit,
        2 => ProcessEnd::Exec,
        3 => ProcessEnd::Vanished,
        4 => ProcessEnd::Running,
        _ => return None,
    };
    Some((end, bytes.varint()?))
}
