//! For which span of OpenTelemetry's the calling thread works, read where Python keeps it.
//!
//! opentelemetry-api keeps its current context in a `ContextVar`: the thread's `Context` has a tree (a HAMT) of
//! such variables; the value of the one that is named `current_context` is a dict; under a key that begins with
//! `current-span-` it has the current span; that has its `SpanContext`, a tuple of trace id, span id and more, as `_context`.
//!
//! What is read belongs to the thread that reads: a context is entered by one thread at a time, its tree and the
//! dict are never changed but replaced, and a span gets its context when it is made. So nothing is kept of one
//! look for the next, whose addresses may be other objects': each look goes the whole way, some thirty words. Where a span's
//! attributes are in a dict of its own, whose keys another thread may free while this one has let go of the GIL, they and what is behind them
//! are copied by the kernel, which does not fault; where nothing may be copied, their pages are asked for first. Only which
//! variable it is is remembered, by interpreter, with the hash that tells it from another at its address; and as long as none is
//! known, how the tree looked in which a thread searched in vain.
//!
//! Every object is looked at before it is followed (null, alignment, user space, its type); a tree, a dict and
//! a number are followed so far and no further. The first time, all of it is read by reads that cannot fault; an
//! interpreter in which something is not as it should be gives no callers from then on, and that is said.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_producer::memory::prefetch;
use gputrace_producer::session::Session;
use gputrace_producer::stderr::KeepErrno;
use gputrace_wire::caller::Caller;
use gputrace_wire::counter::Counter;

use super::layout::{ABSENT, Layout};
use super::memory::{Checked, Lent, Memory, Own};
use super::objects::{Found, Objects};
use super::runtime::Runtime;
use super::tree;
use super::walk::Damaged;

/// What opentelemetry-api calls its variable, and how its key for the span begins.
const VARIABLE: &[u8] = b"current_context";
const SPAN_KEY: &[u8] = b"current-span-";
/// The span's attribute that has its context.
const ATTRIBUTE: &[u8] = b"_context";
/// Items of a `SpanContext`, of which the first four are read.
const ITEMS: u64 = 6;
/// Digits of a trace id, 30 bits each, and a span's.
const TRACE_DIGITS: u64 = 5;
const SPAN_DIGITS: u64 = 3;

/// Interpreters whose variable is remembered.
const INTERPRETERS: usize = 4;
/// First looks that find something that is no span, before it is taken for somebody else's: each is dozens of system calls.
const VAIN_MAX: u32 = 64;

struct Variable {
    interpreter: AtomicU64,
    at: AtomicU64,
    hash: AtomicU32,
}

static VARIABLES: [Variable; INTERPRETERS] =
    [const { Variable { interpreter: AtomicU64::new(0), at: AtomicU64::new(0), hash: AtomicU32::new(0) } };
        INTERPRETERS];

thread_local! {
    /// How the last tree looked in which the thread searched in vain.
    static SEARCHED: Cell<u64> = const { Cell::new(0) };
}

/// First looks in vain.
static VAIN: AtomicU32 = AtomicU32::new(0);

/// How far reading is trusted: [`trust`].
static TRUST: AtomicU32 = AtomicU32::new(trust::NOTHING);

mod trust {
    /// Every read is one that cannot fault.
    pub const NOTHING: u32 = 0;
    /// A thread's tree of variables was what it should be.
    pub const TREE: u32 = 1;
    /// And so was a span in it.
    pub const ALL: u32 = 2;
    /// Something was not: nothing is read any more.
    pub const BROKEN: u32 = 3;
}

/// Has fetched what a look at a thread's variables begins with.
#[inline(always)]
pub fn expect() {
    prefetch(&TRUST);
    prefetch(&VARIABLES);
    tree::expect();
}

/// Whether the thread of that state may work for somebody: most threads have no context at all, since whoever uses
/// neither asyncio nor context variables has none.
#[inline(always)]
pub fn may_be_of_state(runtime: &Runtime, state: u64) -> bool {
    let at = runtime.layout.thread_context;
    // SAFETY: the state is the calling thread's, of an interpreter whose layout was checked.
    at != ABSENT && unsafe { Own::new() }.word(state, at.into()).is_some_and(|context| context != 0)
}

/// The span that the thread of that state works for.
#[inline(always)]
pub fn of_state(session: &Session, runtime: &Runtime, state: u64) -> Caller {
    let layout = &runtime.layout;
    if layout.thread_context == ABSENT {
        return Caller::NOBODY;
    }
    // SAFETY: the state is the calling thread's, of an interpreter whose layout was checked.
    let memory = unsafe { Own::new() };
    match memory.word(state, layout.thread_context.into()) {
        None | Some(0) => Caller::NOBODY,
        Some(context) => of_context(session, runtime, state, context),
    }
}

#[inline(never)]
fn of_context(session: &Session, runtime: &Runtime, state: u64, context: u64) -> Caller {
    let trusted = TRUST.load(Ordering::Relaxed);
    if trusted == trust::BROKEN {
        return Caller::NOBODY;
    }
    // SAFETY: as in `of_state`; what the context leads to was checked to be as this version has it.
    let own = Objects::new(unsafe { Own::new() }, &runtime.layout, runtime.types.text);
    if trusted == trust::ALL {
        let read =
            value_of(&own, runtime, state, context, Certainty::Has).and_then(|value| caller_of(&own, value));
        return read.map(Option::unwrap_or_default).unwrap_or_else(|Damaged| {
            session.count(Counter::CallersUnread, 1);
            Caller::NOBODY
        });
    }
    // Where there may be a span, that is looked at first by reads that cannot fault.
    if trusted == trust::TREE && value_of(&own, runtime, state, context, Certainty::Looks) == Ok(0) {
        return Caller::NOBODY;
    }
    first_look(session, runtime, state, context)
}

#[cold]
#[inline(never)]
fn first_look(session: &Session, runtime: &Runtime, state: u64, context: u64) -> Caller {
    let _errno = KeepErrno::new();
    let checked = Objects::new(Checked::new(), &runtime.layout, runtime.types.text);
    let looked = value_of(&checked, runtime, state, context, Certainty::Has).and_then(|value| {
        if value == 0 {
            return Ok((Caller::NOBODY, trust::TREE));
        }
        Ok(match caller_of(&checked, value)? {
            Some(caller) => (caller, trust::ALL),
            // A context without a span shows too little.
            None => (Caller::NOBODY, trust::NOTHING),
        })
    });
    let is_vain =
        matches!(looked, Ok((_, trust::NOTHING))) && VAIN.fetch_add(1, Ordering::Relaxed) >= VAIN_MAX;
    match looked {
        Ok((caller, shown)) if !is_vain => {
            // Whatever others found out meanwhile stays, unless this is more.
            TRUST.fetch_max(shown, Ordering::Relaxed);
            caller
        }
        _ => {
            if TRUST.swap(trust::BROKEN, Ordering::Relaxed) != trust::BROKEN {
                super::runtime::say_of_interpreter(
                    session,
                    b"no requests of OpenTelemetry's in Python: ",
                    runtime.version,
                    b"keeps their spans in a way that is not known",
                );
            }
            Caller::NOBODY
        }
    }
}

/// The value of OpenTelemetry's variable in that context; 0 where it has none.
#[inline(always)]
fn value_of<M: Memory>(
    objects: &Objects<'_, M>,
    runtime: &Runtime,
    state: u64,
    context: u64,
    certainty: Certainty,
) -> Result<u64, Damaged> {
    let Layout { thread_interp, .. } = *objects.layout;
    objects.is_of(context, runtime.context_type)?;
    let variables = objects.field(context, 1)?;
    if variables == 0 {
        return Ok(0);
    }
    let interpreter = objects.word(state, thread_interp.into())?;
    for known in &VARIABLES {
        // SYNC: pairs with the Release store in `remember`.
        let of = known.interpreter.load(Ordering::Acquire);
        if of == interpreter {
            let (at, hash) = (known.at.load(Ordering::Relaxed), known.hash.load(Ordering::Relaxed));
            return tree::find(objects, variables, at, hash);
        }
        if of == 0 {
            break;
        }
    }
    search(objects, variables, interpreter, certainty)
}

/// By what a variable that is not known yet is taken for OpenTelemetry's. Another library may have one of that name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Certainty {
    /// By its name and by a key that says so: it may have a span.
    Looks,
    /// It has one, if only one that is invalid, as OpenTelemetry has where nothing is recorded.
    Has,
}

/// Looks through all variables: which of them is OpenTelemetry's is not known yet, or there is none.
#[inline(never)]
fn search<M: Memory>(
    objects: &Objects<'_, M>,
    variables: u64,
    interpreter: u64,
    certainty: Certainty,
) -> Result<u64, Damaged> {
    // As long as nothing changes, there is as little in it as there was.
    let look = tree::look(objects, variables)?;
    if SEARCHED.get() == look {
        return Ok(0);
    }
    let (mut found, mut may_have) = (0, false);
    tree::each(objects, variables, |variable, value| {
        if found == 0 && objects.text_is(objects.field(variable, 0)?, VARIABLE)? && objects.is_dict(value)? {
            may_have = true;
            if certainty == Certainty::Looks {
                found = if span_in(objects, value)? == 0 { 0 } else { value };
            } else if caller_of(objects, value)?.is_some() {
                remember(interpreter, variable, tree::hash_of(objects, variable)?);
                found = value;
            }
        }
        Ok(())
    })?;
    // A context that gave way to another with a span often leaves it its address, and the tree looks the same.
    if !may_have {
        SEARCHED.set(look);
    }
    Ok(found)
}

#[cold]
fn remember(interpreter: u64, variable: u64, hash: u32) {
    /// A place that is being filled: no interpreter is there.
    const TAKEN: u64 = 1;
    for known in &VARIABLES {
        let free = known.interpreter.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        match free {
            Ok(_) => {
                known.at.store(variable, Ordering::Relaxed);
                known.hash.store(hash, Ordering::Relaxed);
                // SYNC: pairs with the Acquire load in `value_of`.
                known.interpreter.store(interpreter, Ordering::Release);
                return;
            }
            Err(of) if of == interpreter => return,
            Err(_) => {}
        }
    }
}

/// The span in OpenTelemetry's context, a dict; 0 where it has none.
#[inline(always)]
fn span_in<M: Memory>(objects: &Objects<'_, M>, context: u64) -> Result<u64, Damaged> {
    objects.in_dict(context, |key| objects.text_begins(key, SPAN_KEY))
}

/// What the span in OpenTelemetry's context is known by: nobody, if it is one that is invalid. `None` where there is no span, or
/// one of another maker's.
#[inline(always)]
fn caller_of<M: Memory>(objects: &Objects<'_, M>, context: u64) -> Result<Option<Caller>, Damaged> {
    if context == 0 || !objects.is_dict(context)? {
        return Ok(None);
    }
    let span = span_in(objects, context)?;
    if span == 0 {
        return Ok(None);
    }
    if objects.has_dict_of_its_own(span)? {
        return caller_by_copies(&Objects::new(Lent, objects.layout, objects.text), span);
    }
    caller_of_span(objects, span)
}

#[cold]
#[inline(never)]
fn caller_by_copies(objects: &Objects<'_, Lent>, span: u64) -> Result<Option<Caller>, Damaged> {
    let _errno = KeepErrno::new();
    caller_of_span(objects, span)
}

#[inline(always)]
fn caller_of_span<M: Memory>(objects: &Objects<'_, M>, span: u64) -> Result<Option<Caller>, Damaged> {
    let Found::Attribute(known_by) = objects.attribute(span, ATTRIBUTE)? else {
        // A span of another maker's, that keeps it elsewhere.
        return Ok(None);
    };
    if !objects.is_tuple_of(known_by, ITEMS)? {
        return Ok(None);
    }
    let number = |index, digits| objects.number(objects.item(known_by, index)?, digits);
    let trace = number(0, TRACE_DIGITS)?;
    let span = number(1, SPAN_DIGITS)?;
    if trace == 0 || span == 0 {
        return Ok(Some(Caller::NOBODY));
    }
    Ok(Some(Caller {
        trace: [trace as u64, (trace >> 64) as u64],
        span: u64::try_from(span).map_err(|_| Damaged)?,
        flags: number(3, 1)? as u8,
        remote: u8::from(number(2, 1)? != 0),
    }))
}

#[cfg(test)]
pub fn read_image<M: Memory>(memory: M, layout: &Layout, text: u64, value: u64) -> Result<Caller, Damaged> {
    caller_of_image(&Objects::new(memory, layout, text), value)
}

/// Of an image, not of this process, whatever form its dicts have.
#[cfg(test)]
fn caller_of_image<M: Memory>(objects: &Objects<'_, M>, context: u64) -> Result<Caller, Damaged> {
    if context == 0 || !objects.is_dict(context)? {
        return Ok(Caller::NOBODY);
    }
    let span = span_in(objects, context)?;
    let caller = if span == 0 { None } else { caller_of_span(objects, span)? };
    Ok(caller.unwrap_or_default())
}
