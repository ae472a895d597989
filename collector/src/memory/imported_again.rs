//! Memory of another process that this one opened more than once.
//!
//! The driver counts: it gives the same address again, and each opening is closed by a call of its own.

use rustc_hash::FxHashMap;

/// No address has this bit, for addresses of programs have at most 57.
const MADE_KEY: u64 = 1 << 63;

/// The keys of further openings by address. The key of the first is the address.
#[derive(Clone, Debug, Default)]
pub(super) struct ImportedAgain {
    by_address: FxHashMap<u64, Vec<u64>>,
    made_keys: u64,
}

impl ImportedAgain {
    /// The key of one more opening of what is open at an address. Each is followed as a live allocation, so
    /// their number is bounded with these.
    pub fn opened(&mut self, address: u64) -> u64 {
        self.made_keys += 1;
        let key = MADE_KEY | self.made_keys;
        self.by_address.entry(address).or_default().push(key);
        key
    }

    /// The key of the opening that a call for that address closes: the last one.
    pub fn closed(&mut self, address: u64) -> u64 {
        let Some(keys) = self.by_address.get_mut(&address) else { return address };
        let key = keys.pop();
        if keys.is_empty() {
            self.by_address.remove(&address);
        }
        key.unwrap_or(address)
    }
}
