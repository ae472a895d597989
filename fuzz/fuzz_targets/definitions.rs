//! A definitions area of any words: read by the living's and by the dead's rules, and appended to.
//!
//! Input: words reserved (u64), next id (u64), where to look first (u8), the words.
#![no_main]

use gputrace_fuzz::Input;
use gputrace_wire::definition::{Area, FIELDS_MAX, Look, TEXT_MAX, after_hole, look};
use libfuzzer_sys::fuzz_target;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let reserved = AtomicU64::new(input.u64());
    let next_id = AtomicU32::new(input.u64() as u32);
    let begin = usize::from(input.u8());
    let words = input.words(input.0.len().div_ceil(8));
    walk(&words, begin);

    let area = Area { reserved: &reserved, next_id: &next_id, words: &words };
    let at = reserved.load(Ordering::Relaxed);
    if area.append(1, &[2, 3], b"text").is_some() {
        assert_eq!(reserved.load(Ordering::Relaxed), at + 5);
        let Look::Record(record) = look(&words, at as usize) else { panic!("appended and not there") };
        assert_eq!((record.kind, record.field(&words, 0), record.field(&words, 1)), (1, 2, 3));
        assert!(record.text(&words).eq(*b"text"));
    } else {
        assert_eq!(reserved.load(Ordering::Relaxed), at);
        assert!(at.checked_add(5).is_none_or(|end| end > words.len() as u64));
    }
    walk(&words, 0);
});

fn walk(words: &[AtomicU64], begin: usize) {
    let mut here = Some(begin);
    while let Some(at) = here {
        here = match look(words, at) {
            Look::Record(record) => {
                assert!(record.at == at && record.end() > at && record.end() <= words.len());
                assert!(record.field_count <= FIELDS_MAX && record.text_bytes <= TEXT_MAX);
                assert_eq!(record.text(words).count(), record.text_bytes);
                assert_eq!(record.field(words, record.field_count), 0);
                for index in 0..record.field_count {
                    record.field(words, index);
                }
                Some(record.end())
            }
            Look::Nothing => {
                let next = after_hole(words, at);
                assert!(next.is_none_or(|next| next > at && next < words.len()));
                next
            }
            Look::Damaged => None,
        };
    }
}
