//! The calling thread's active span of OpenTelemetry, read where Python stores it.
//!
//! opentelemetry-api keeps its current context in a `ContextVar`. The thread's `Context` has a tree
//! (a HAMT) of such variables. The value of the variable named `current_context` is a dict; under a key
//! that begins with `current-span-` the dict has the current span. The span has its `SpanContext`, a
//! tuple of trace id, span id and more, as `_context`.
//!
//! Everything read belongs to the reading thread: one thread at a time enters a context, the tree and
//! the dict are replaced and never changed, and a span gets its `SpanContext` when it is made. Addresses
//! may be reused, so nothing is cached from one reading to the next: each reads the whole path, some
//! thirty words. A span's attributes may be in a dict of its own, whose keys another thread may free
//! while this one has released the GIL. Those keys and what they lead to are copied by the kernel,
//! which does not fault; where copying is not possible, their pages are checked first. Two things are
//! kept: which variable is OpenTelemetry's, by interpreter, with the hash that distinguishes it from
//! another one at its address; and what was seen of the tree in which the thread last found none.
//!
//! Every object is checked before it is followed (null, alignment, user space, its type); the sizes of
//! a tree, a dict and a number are bounded. The first reading uses only reads that cannot fault. If an
//! object in an interpreter is not as expected, the interpreter gives no spans from then on, and a
//! notice reports that.

use core::cell::Cell;
use core::hint::cold_path;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_producer::session::Session;
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::thread;
use gputrace_wire::caller::Caller;
use gputrace_wire::counter::Counter;

use super::layout::{ABSENT, Layout};
use super::memory::{Checked, Lent, Memory, Own};
use super::objects::{AttributeValue, Objects};
use super::runtime::Runtime;
use super::tree::{self, SeenTree};
use super::walk::Damaged;
use crate::stack_slot::StackSlot;

/// The name of opentelemetry-api's variable, and the beginning of its key for the span.
const VARIABLE: &[u8] = b"current_context";
const SPAN_KEY: &[u8] = b"current-span-";
/// The span's attribute that contains its context.
const ATTRIBUTE: &[u8] = b"_context";
/// The number of items of a `SpanContext`; the first four are read.
const ITEMS: u64 = 6;
/// Digits of 30 bits of a trace id, and of a span id.
const TRACE_DIGITS: u64 = 5;
const SPAN_DIGITS: u64 = 3;

/// The number of interpreters whose variable is remembered.
const INTERPRETERS: usize = 4;
/// After so many first reads that find no span, the variable is taken for another library's: each read
/// costs dozens of system calls.
const FAILED_READS_MAX: u32 = 64;

struct Variable {
    interpreter: AtomicU64,
    at: AtomicU64,
    hash: AtomicU32,
}

static VARIABLES: [Variable; INTERPRETERS] =
    [const { Variable { interpreter: AtomicU64::new(0), at: AtomicU64::new(0), hash: AtomicU32::new(0) } };
        INTERPRETERS];

/// The last tree in which the calling thread found no variable.
#[inline(always)]
fn with_searched<R>(body: impl FnOnce(&Cell<SeenTree>) -> R) -> R {
    thread::with(|slot| body(&StackSlot::of(slot).searched))
}

/// First reads without success.
static FAILED_READS: AtomicU32 = AtomicU32::new(0);

/// How far the layout is trusted: [`trust`].
static TRUST: AtomicU32 = AtomicU32::new(trust::NOTHING);

mod trust {
    /// All reads are ones that cannot fault.
    pub const NOTHING: u32 = 0;
    /// A thread's tree of variables had the expected layout.
    pub const TREE: u32 = 1;
    /// A span in the tree had it too.
    pub const ALL: u32 = 2;
    /// Some object had another layout; nothing is read any more.
    pub const BROKEN: u32 = 3;
}

/// The context with the variables of the thread of that state, the calling one; 0 if it has none. A thread
/// that uses neither asyncio nor context variables has no context at all.
#[inline(always)]
pub fn context_of_state(runtime: &Runtime, state: u64) -> u64 {
    let at = runtime.layout.thread_context;
    if at == ABSENT {
        cold_path();
        return 0;
    }
    // SAFETY: the state is the calling thread's, of an interpreter whose layout was checked.
    unsafe { Own::new() }.word(state, at.into()).unwrap_or(0)
}

/// Whether the calling thread, which has that context of variables, may have an active span. Some libraries
/// have variables of their own, and most calls find them as the last call did.
#[inline(always)]
pub fn may_be_span_in(runtime: &Runtime, context: u64) -> bool {
    // SAFETY: the context is the calling thread's, of an interpreter whose layout was checked.
    let memory = unsafe { Own::new() };
    !is_as_searched(&Objects::new(memory, &runtime.layout, runtime.types.text), context)
}

/// Whether the variables of that context are those among which the calling thread last found none of
/// OpenTelemetry's. Asked only while no interpreter's variable is known: once it is, it is looked up itself.
#[inline(always)]
fn is_as_searched(own: &Objects<'_, Own>, context: u64) -> bool {
    let searched = with_searched(Cell::get);
    let [first, ..] = &VARIABLES;
    searched != SeenTree::default()
        && first.interpreter.load(Ordering::Relaxed) == 0
        && own
            .field(context, 1)
            .is_ok_and(|variables| variables == 0 || tree::is_as_seen(own, variables, searched) == Ok(true))
}

/// The active span of the thread of that state.
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
    // If there may be a span, it is first read by reads that cannot fault.
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
            // A context without a span proves too little.
            None => (Caller::NOBODY, trust::NOTHING),
        })
    });
    let is_other_library = matches!(looked, Ok((_, trust::NOTHING)))
        && FAILED_READS.fetch_add(1, Ordering::Relaxed) >= FAILED_READS_MAX;
    match looked {
        Ok((caller, shown)) if !is_other_library => {
            // A level that another thread stored stays, unless this one is higher.
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

/// The value of OpenTelemetry's variable in that context; 0 if it has none.
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

/// How an unknown variable is recognised as OpenTelemetry's. Another library may have one of that name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Certainty {
    /// By its name and by a key of its dict: it may contain a span.
    Looks,
    /// It contains a span, if only the invalid one that OpenTelemetry uses when nothing is recorded.
    Has,
}

/// Searches all variables: OpenTelemetry's is not known yet, or does not exist.
#[inline(never)]
fn search<M: Memory>(
    objects: &Objects<'_, M>,
    variables: u64,
    interpreter: u64,
    certainty: Certainty,
) -> Result<u64, Damaged> {
    // An unchanged tree contains no more than before.
    let look = tree::look(objects, variables)?;
    if with_searched(Cell::get) == look {
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
    // A new context with a span often gets the address of the one it replaces, and the tree's fingerprint
    // is the same.
    if !may_have {
        with_searched(|searched| searched.set(look));
    }
    Ok(found)
}

#[cold]
fn remember(interpreter: u64, variable: u64, hash: u32) {
    /// Marks a slot that is being filled: no interpreter has this address.
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

/// The span in OpenTelemetry's context, a dict; 0 if there is none.
#[inline(always)]
fn span_in<M: Memory>(objects: &Objects<'_, M>, context: u64) -> Result<u64, Damaged> {
    objects.in_dict(context, |key| objects.text_begins(key, SPAN_KEY))
}

/// The ids of the span in OpenTelemetry's context; `NOBODY` for an invalid span. `None` if there is no
/// span, or one of another implementation.
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
    let AttributeValue::Attribute(known_by) = objects.attribute(span, ATTRIBUTE)? else {
        // A span of another implementation, which stores its context elsewhere.
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

/// For tests: reads an image instead of this process, whatever form its dicts have.
#[cfg(test)]
fn caller_of_image<M: Memory>(objects: &Objects<'_, M>, context: u64) -> Result<Caller, Damaged> {
    if context == 0 || !objects.is_dict(context)? {
        return Ok(Caller::NOBODY);
    }
    let span = span_in(objects, context)?;
    let caller = if span == 0 { None } else { caller_of_span(objects, span)? };
    Ok(caller.unwrap_or_default())
}
