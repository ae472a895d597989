//! A packet of any bytes on the session socket.
//!
//! Input: the packet.
#![no_main]

use gputrace_wire::handshake::{BadMessage, HEAD_BYTES, Head, TEXT_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|packet: &[u8]| {
    match Head::parse(packet) {
        Ok((head, text)) => {
            assert_eq!(packet[..HEAD_BYTES], head.to_bytes());
            assert_eq!(text.len(), head.text_bytes as usize);
            assert_eq!(text, &packet[HEAD_BYTES..HEAD_BYTES + text.len()]);
        }
        Err(BadMessage::Short) => assert!(packet.len() < HEAD_BYTES),
        Err(BadMessage::Magic) => assert_ne!(packet[..4], *b"GTS1"),
        Err(BadMessage::Length) => {
            let length = u32::from_le_bytes(packet[20..24].try_into().expect("four bytes")) as usize;
            assert!(length > TEXT_MAX || length > packet.len() - HEAD_BYTES);
        }
    }
});
