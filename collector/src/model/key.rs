//! What joins a call to its records.

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JoinKey {
    pub epoch: u32,
    pub correlation: u32,
}
