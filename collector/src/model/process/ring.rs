//! A ring, as far as the stream has come in it.

/// What a ring's earlier entries say about its later ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingState {
    pub thread: u32,
    /// The ranges that are open on it.
    pub ranges: u32,
    pub epoch: Option<u32>,
    /// Where the stream is in the ring: cells since it was made.
    pub position: u64,
    /// Cells to come that another trace had already.
    pub repeated: u64,
}

impl RingState {
    /// How many of the ring's cells any trace had so far.
    pub fn seen(&self) -> u64 {
        self.position.saturating_add(self.repeated)
    }
}
