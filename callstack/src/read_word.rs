//! Something that was read, and where.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadWord {
    pub at: u64,
    pub word: u64,
}
