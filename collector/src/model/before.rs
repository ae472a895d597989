//! What a thread did before a launch: the reason why a device was idle until then.

/// What a thread did between its previous launch, copy or memset and this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Before {
    /// The stacks of the two hooked calls between which the thread spent the longest time outside of hooked
    /// calls. If it spent longer in one hooked call that is no wait, such as an allocation, both are that
    /// call's. 0 for none.
    pub from: u32,
    pub to: u32,
    /// The longest call that blocked the thread, if any did.
    pub blocked: Blocked,
    /// Whether the thread made the stream wait for an event or a value.
    pub awaits: bool,
}

/// A call in which a thread waited for a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Blocked {
    pub by: BlockedBy,
    pub start_ns: u64,
    pub end_ns: u64,
    pub stack: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum BlockedBy {
    #[default]
    Nothing,
    /// A synchronisation with a stream, an event or a context.
    Sync,
    /// The previous copy or memset: the part of its call after the device had ended it.
    Copy,
}
