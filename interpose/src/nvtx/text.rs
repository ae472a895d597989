//! Reads what programs pass to NVTX: names in three forms, and attributes.
//!
//! A text that is null, too long, not UTF-8 or no character still gives a name, so that every push is
//! recorded. An invalid pointer is the program's error with any tool, and is not caught.

use core::ffi::c_void;

use gputrace_callstack::ranges::{Label, Look, NAME_MAX};
use gputrace_wire::caller::Caller;
use gputrace_wire::range::payload;

use super::traceparent::taken_out;
use super::{Ascii, Wide};

/// NVTX's layout, the same in versions 1 to 3.
#[repr(C)]
pub struct Attributes {
    version: u16,
    bytes: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}
const _: () = assert!(size_of::<Attributes>() == 48);

/// The description of a named resource, in NVTX's layout.
#[repr(C)]
pub struct Resource {
    version: u16,
    bytes: u16,
    pub identifier_type: u32,
    pub identifier: u64,
    message_type: i32,
    message: *const c_void,
}
const _: () = assert!(size_of::<Resource>() == 32);

mod message {
    pub const ASCII: i32 = 1;
    pub const WIDE: i32 = 2;
    pub const REGISTERED: i32 = 3;
}

const COLOR_ARGB: i32 = 1;

/// The bytes of a C string, cut to the longest name that is kept; empty for null.
///
/// # Safety
/// Null, or a C string that lives as long as the caller's reference.
#[inline(always)]
pub unsafe fn ascii<'t>(text: Ascii) -> &'t [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: nothing is read behind the NUL, and no more than the limit.
    unsafe { core::slice::from_raw_parts(text.cast(), libc::strnlen(text, NAME_MAX)) }
}

/// Calls `act` with a wide string as UTF-8. Invalid characters become U+FFFD.
///
/// # Safety
/// Null, or wide characters that end with 0.
pub unsafe fn wide<R>(text: Wide, act: impl FnOnce(&[u8]) -> R) -> R {
    let mut buffer = [0u8; NAME_MAX];
    let mut used = 0;
    let mut from = text;
    while !from.is_null() {
        // SAFETY: not behind the 0, where the loop ends. The program need not have aligned it.
        let value = unsafe { from.read_unaligned() };
        let mut bytes = [0; 4];
        let character = char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut bytes);
        let end = used + character.len();
        match buffer.get_mut(used..end) {
            Some(target) if value != 0 => target.copy_from_slice(character.as_bytes()),
            _ => break,
        }
        used = end;
        // SAFETY: the character there was not the last one.
        from = unsafe { from.add(1) };
    }
    act(buffer.get(..used).unwrap_or_default())
}

/// The label of a name in a domain, and the span context in the name.
#[inline(always)]
pub fn carried(domain: Label, name: &[u8]) -> (Label, Caller) {
    taken_out(name, |name, caller| (Label::range(domain, name), *caller))
}

/// The label of a message in a domain, and the span context in the message.
///
/// # Safety
/// The message has the type that its type field states.
#[inline(always)]
unsafe fn label(domain: Label, message_type: i32, message: *const c_void) -> (Label, Caller) {
    match message_type {
        // SAFETY: the caller's promise.
        message::ASCII => carried(domain, unsafe { ascii(message.cast()) }),
        // SAFETY: as above.
        message::WIDE => unsafe { wide(message.cast(), |name| carried(domain, name)) },
        message::REGISTERED => {
            let label = Label::from_handle(message.addr());
            if label.is_domain() {
                return (Label::NONE, Caller::NOBODY);
            }
            // A registered name is stored in full, so its span context is found at every use.
            label.with_long_text(|name| carried(domain, name)).unwrap_or((label, Caller::NOBODY))
        }
        _ => (Label::range(domain, b""), Caller::NOBODY),
    }
}

/// The contents of a range's attributes, in a domain.
///
/// # Safety
/// Null, or attributes of NVTX.
#[inline(always)]
pub unsafe fn range(domain: Label, attributes: *const Attributes) -> (Label, Look, Caller) {
    let nothing = || (Label::range(domain, b""), Look::default(), Caller::NOBODY);
    if attributes.is_null() {
        return nothing();
    }
    // SAFETY: the first two fields are there in every version.
    let bytes = unsafe { (&raw const (*attributes).bytes).read_unaligned() };
    if usize::from(bytes) < size_of::<Attributes>() {
        return nothing();
    }
    // SAFETY: the program states the size; these bytes are within it.
    let said = unsafe { attributes.read_unaligned() };
    let payload_kind = u32::try_from(said.payload_type).unwrap_or(0);
    let look = Look {
        color: if said.color_type == COLOR_ARGB { said.color } else { 0 },
        category: said.category,
        payload_kind: if payload_kind <= payload::F32 { payload_kind } else { payload::NONE },
        payload: match payload_kind {
            payload::U64 | payload::I64 | payload::F64 => said.payload,
            payload::U32 | payload::I32 | payload::F32 => said.payload & 0xffff_ffff,
            _ => 0,
        },
    };
    // SAFETY: the program states the message's type.
    let (label, caller) = unsafe { label(domain, said.message_type, said.message) };
    (label, look, caller)
}

/// Calls `act` with a resource and its name.
///
/// # Safety
/// Null, or attributes of NVTX.
pub unsafe fn resource(resource: *const Resource, act: impl FnOnce(&Resource, &[u8])) {
    // SAFETY: the first two fields are there in every version.
    let bytes = (!resource.is_null()).then(|| unsafe { (&raw const (*resource).bytes).read_unaligned() });
    if bytes.is_none_or(|bytes| usize::from(bytes) < size_of::<Resource>()) {
        return;
    }
    // SAFETY: the program states the size; these bytes are within it.
    let said = unsafe { resource.read_unaligned() };
    match said.message_type {
        // SAFETY: the program states the message's type.
        message::ASCII => act(&said, unsafe { ascii(said.message.cast()) }),
        // SAFETY: as above.
        message::WIDE => unsafe { wide(said.message.cast(), |name| act(&said, name)) },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_forms_are_bytes() {
        // SAFETY: null, or strings that end.
        unsafe {
            assert_eq!(ascii(core::ptr::null()), b"");
            assert_eq!(ascii(c"caf\xe9".as_ptr()), b"caf\xe9");
            let long = vec![b'x'; 10_000];
            let long = std::ffi::CString::new(long).unwrap();
            assert_eq!(ascii(long.as_ptr()).len(), NAME_MAX);
            let of = |text: &[u32]| wide(text.as_ptr(), <[u8]>::to_vec);
            assert_eq!(of(&[0x73, 0xe9, 0x4e2d, 0x1f600, 0]), "sé中😀".as_bytes());
            assert_eq!(of(&[0xd800, 0xffff_ffff, 0]), "\u{fffd}\u{fffd}".as_bytes());
            assert_eq!(of(&[0]), b"");
            assert_eq!(wide(core::ptr::null(), <[u8]>::to_vec), b"");
            let mut endless = vec![0x4e2d; 2000];
            endless.push(0);
            let cut = of(&endless);
            assert!(cut.len() > NAME_MAX - 4 && core::str::from_utf8(&cut).is_ok());
        }
    }

    #[test]
    fn attributes_that_are_cut_short_or_missing_name_nothing() {
        // SAFETY: null, or attributes no shorter than their size states.
        unsafe {
            assert!(gputrace_callstack::ranges::prepare());
            let none = (Label::range(Label::NONE, b""), Look::default(), Caller::NOBODY);
            assert_eq!(range(Label::NONE, core::ptr::null()), none);
            let mut attributes = Attributes {
                version: 3,
                bytes: 20,
                category: 1,
                color_type: 1,
                color: 0xff00_ff00,
                payload_type: 5,
                reserved: 0,
                payload: u64::MAX,
                message_type: 3,
                message: core::ptr::without_provenance(usize::MAX),
            };
            assert_eq!(range(Label::NONE, &attributes), none);
            attributes.bytes = 48;
            let (label, look, caller) = range(Label::NONE, &attributes);
            assert!(caller.is_nobody());
            assert_eq!(label, Label::NONE);
            let wanted =
                Look { color: 0xff00_ff00, category: 1, payload_kind: payload::I32, payload: 0xffff_ffff };
            assert_eq!(look, wanted);
        }
    }
}
