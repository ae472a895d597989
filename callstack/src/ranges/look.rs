//! The attributes of a range other than its name.

use gputrace_wire::range::RangeBegin;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Look {
    /// ARGB; 0 for none.
    pub color: u32,
    pub category: u32,
    /// One of [`gputrace_wire::range::payload`].
    pub payload_kind: u32,
    pub payload: u64,
}

impl Look {
    /// The entry of a range with these attributes that begins.
    #[inline(always)]
    pub fn begin(self, kind: u16, range: u32, start_ticks: u64) -> RangeBegin {
        let Look { color, category, payload_kind, payload } = self;
        RangeBegin { kind, range, start_ticks, position: 0, color, category, payload_kind, payload, id: 0 }
    }
}
